"""Which releases of Kubernetes and of container runtimes have a defect or a feature."""
