"""The preview page: its parts, and the route that serves them as one HTML document."""
