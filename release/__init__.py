"""The packaging of a release: `python -m release`, which `make release-dry-run` runs."""
