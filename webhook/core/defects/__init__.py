"""The releases of Kubernetes and of container runtimes that have a defect or a feature."""
