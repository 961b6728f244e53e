"""What podsettle costs, measured beside what it could cost: `python -m bench`."""
