"""An hour of ordinary work: memory, descriptors, tasks, threads and latencies, minute by minute.

`make soak` runs it. See `docs/reliability.md`.
"""
