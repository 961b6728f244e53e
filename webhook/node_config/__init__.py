"""Configuration for nodes and the RuntimeClass that leads pods to them."""
