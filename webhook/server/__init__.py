"""The HTTP edge: FastAPI's routes around the core, and the plain ASGI hot path of /mutate."""
