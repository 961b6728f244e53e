"""Measurements on a real node: a kubelet, a container runtime and a disk."""
