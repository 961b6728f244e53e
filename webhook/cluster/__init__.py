"""The modules that read from the cluster and write to it."""
