"""The view of the cluster, and where it comes from."""
