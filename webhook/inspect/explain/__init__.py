"""What podsettle did to a pod, why, and what it would do today, in plain sentences."""
