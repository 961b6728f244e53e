"""Faults around podsettle while pods are created: what is lost, and how podsettle reports it.

`make faults` runs them. See `docs/reliability.md`.
"""
