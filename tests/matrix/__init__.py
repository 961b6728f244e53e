"""The end-to-end tests on API servers of several releases of Kubernetes."""
