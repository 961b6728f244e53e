"""What the commands `scan`, `explain` and `doctor` find out about a live cluster."""
