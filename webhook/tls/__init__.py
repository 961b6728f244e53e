"""Certificates of the server: where they come from, and how they are issued and verified."""
