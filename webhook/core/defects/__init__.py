"""The catalogue of defects, and the features of releases of Kubernetes and of runtimes."""
