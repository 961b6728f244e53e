"""Connections of clients: TLS handshakes, requests, limits on both, and the graceful shutdown."""
