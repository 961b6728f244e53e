"""A real node in namespaces of its own: kubelet, container runtime and control plane.

`python -m tests.support.node -- COMMAND` runs a command in new network, mount, PID, IPC, UTS and
cgroup namespaces. In them, `RealNode.start(Containerd("2.4"))` starts a cluster of one node.
Runtimes use their usual paths, which belong to the namespaces. All of it ends with the command.
"""
