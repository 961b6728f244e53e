"""What images start: their Entrypoint and Cmd, asked for at registries that a policy allows."""
