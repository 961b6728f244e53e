"""What nodes have to be configured with for a RuntimeClass to do what a policy wants of it."""
