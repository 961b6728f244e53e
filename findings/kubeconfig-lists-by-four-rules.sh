#!/bin/sh
# Software: k8s.io/client-go 0.37.2, the library of kubectl 1.37; kubernetes 37.0.2, kr8s 0.20.15 and
#   lightkube 1.0.1 of Python. KUBECONFIG names two files, as in KUBECONFIG=a:b.
# Guess, written before the run: as Kubernetes' documentation says, the first file that sets a value
#   counts, in every client: for the current context, and for a user or a cluster as a whole.
# Behaviour: client-go does that. kubernetes takes users and clusters from the first file, and the
#   current context from the last. kr8s takes the current context from the first file, and users
#   and clusters from the last, so it calls another server than kubectl does, as another user.
#   lightkube takes the list for the name of one file.
# Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check kubernetes==37.0.2 kr8s==0.20.15 lightkube==1.0.1
for name in a b; do
	cat >$name <<END
{current-context: in-$name, contexts: [{name: in-$name, context: {cluster: both, user: both}}],
  clusters: [{name: both, cluster: {server: "https://$name"}}], users: [{name: both, user: {token: $name}}]}
END
done
cat >main.go <<'GO'
package main

import (
	"fmt"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, _ := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	fmt.Println("client-go:", config.CurrentContext, config.Clusters["both"].Server, config.AuthInfos["both"].Token)
}
GO
cat >main.py <<'PYTHON'
import asyncio
import kubernetes.config
import lightkube
from kr8s._auth import KubeAuth
settings = kubernetes.client.Configuration()
kubernetes.config.load_kube_config(client_configuration=settings)
_, current = kubernetes.config.list_kube_config_contexts()
print("kubernetes:", current["name"], settings.host, settings.api_key["BearerToken"].split()[1])

async def print_kr8s():
    auth = await KubeAuth()
    print("kr8s:", auth.active_context, auth.server, auth.token)
asyncio.run(print_kr8s())
try:
    lightkube.KubeConfig.from_env()
except lightkube.core.exceptions.ConfigError as error:
    print("lightkube:", error)
PYTHON
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.37.2 >/dev/null 2>&1
export KUBECONFIG=a:b
{ go run -gcflags=all='-N -l' . && venv/bin/python main.py; } >seen
cat seen
diff seen - <<'END'
client-go: in-a https://a a
kubernetes: in-b https://a a
kr8s: in-a https://b b
lightkube: Configuration file a:b not found
END
