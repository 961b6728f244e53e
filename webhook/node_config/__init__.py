"""Configuration for nodes, and the RuntimeClass that assigns pods to these nodes."""
