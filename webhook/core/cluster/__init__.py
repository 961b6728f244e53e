"""What the core knows of a cluster: the view, its nodes and its RuntimeClasses."""
