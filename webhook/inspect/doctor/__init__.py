"""The checks of an installation, and the kill switch."""
