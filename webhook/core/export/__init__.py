"""SettlePolicies as policies that the API server evaluates itself, without a webhook."""
