"""What kubectl does with a kubeconfig: which API server, which credentials, which proxy.

The source is client-go (`tools/clientcmd`, `transport`, `plugin/pkg/client/auth/exec`), as kubectl
1.37 uses it. `tests/e2e/kubeconfig` compares both, and lists the differences on purpose.
"""
