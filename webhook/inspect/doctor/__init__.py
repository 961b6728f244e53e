"""The checks of an installation."""
