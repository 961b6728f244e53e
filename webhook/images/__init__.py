"""Look-ups of the Entrypoint and Cmd of images, in the registries that a policy allows."""
