"""POST /preview, and the worker process that makes previews."""
