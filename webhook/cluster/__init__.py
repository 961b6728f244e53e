"""The connection to the cluster: what podsettle reads from it and writes to it."""
