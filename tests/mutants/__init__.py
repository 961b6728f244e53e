"""Mutants of real pods, on which decisions with the cache and without it must be equal."""
