"""The packaging of a release: `python -m release`, which `make release` runs."""
