"""Previews: the pods of a workload, and their decisions and diffs for people."""
