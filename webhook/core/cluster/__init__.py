"""The cluster as the core reads it: the view, its nodes and its RuntimeClasses."""
