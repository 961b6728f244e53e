#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/util/strategicpatch), by which `kubectl patch` is
#   applied, and sigs.k8s.io/kustomize/kyaml 0.21.1, by which kustomize 5.8.1 applies `patches`.
# Guess, written before the run: both find a port by its number and protocol, the keys that the API
#   states for the list, so a patch of 53/UDP changes that one in both.
# Behaviour: kubectl's goes by the number alone: it turns 53/TCP into a second 53/UDP, and one
#   `$patch: delete` removes both. kustomize goes by both keys. It deletes none, and where the port
#   has no protocol, it drops the patch of 53/UDP without an error.
# Seen on 2026-11-30: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/kustomize/kyaml/yaml/merge2"
	k8syaml "sigs.k8s.io/yaml"
)

const udp = "{containerPort: 53, protocol: UDP, name: dns}"
const both = "{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}"

func main() {
	for _, each := range [][2]string{
		{both, udp}, {both, "{containerPort: 53, $patch: delete}"}, {"{containerPort: 53}", udp},
	} {
		fmt.Println(each[0], "+", each[1])
		for i, ports := range each {
			each[i] = "{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, ports: [" + ports + "]}]}}"
		}
		live, _ := k8syaml.YAMLToJSON([]byte(each[0]))
		patch, _ := k8syaml.YAMLToJSON([]byte(each[1]))
		patched, _ := strategicpatch.StrategicMergePatch(live, patch, corev1.Pod{})
		merged, _ := merge2.MergeStrings(each[1], each[0], false,
			yaml.MergeOptions{ListIncreaseDirection: yaml.MergeOptionsListPrepend})
		for i, text := range []string{string(patched), merged} {
			var pod corev1.Pod
			k8syaml.Unmarshal([]byte(text), &pod)
			ports, _ := json.Marshal(pod.Spec.Containers[0].Ports)
			fmt.Println([]string{" kubectl:", " kustomize:"}[i], string(ports))
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/api/core/v1@v0.37.2 sigs.k8s.io/kustomize/kyaml/yaml/merge2@v0.21.1 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP} + {containerPort: 53, protocol: UDP, name: dns}
 kubectl: [{"name":"dns","containerPort":53,"protocol":"UDP"},{"containerPort":53,"protocol":"UDP"}]
 kustomize: [{"containerPort":53,"protocol":"TCP"},{"name":"dns","containerPort":53,"protocol":"UDP"}]
{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP} + {containerPort: 53, $patch: delete}
 kubectl: []
 kustomize: [{"containerPort":53,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]
{containerPort: 53} + {containerPort: 53, protocol: UDP, name: dns}
 kubectl: [{"name":"dns","containerPort":53,"protocol":"UDP"}]
 kustomize: [{"containerPort":53}]
END
