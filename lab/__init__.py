"""Experiments that provoke the faults of nodes, and measure what the remedies change and cost.

`python -m lab --help` lists them. README.md has what they measured.
"""
