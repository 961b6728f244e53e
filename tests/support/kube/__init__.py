"""A real kube-apiserver and etcd for the tests: how they are built, and how they run."""
