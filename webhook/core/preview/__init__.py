"""Previews: the pods that a workload would create, and their decisions and diffs for people."""
