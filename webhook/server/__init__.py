"""The HTTP server: FastAPI routes, and the fast path of /mutate."""
