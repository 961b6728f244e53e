"""SettlePolicies: their model, their errors, which pods they cover, and their status."""
