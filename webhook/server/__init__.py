"""The HTTP server: its protocol, its FastAPI routes and its limits."""
