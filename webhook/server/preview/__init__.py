"""POST /preview: its route, the queue, and the worker process that makes previews."""
