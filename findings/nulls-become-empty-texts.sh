#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/runtime/serializer/json, strict) and k8s.io/api 0.37.2,
#   by which the API server reads an object.
# Guess, written before the run: a key with null is a key that is not there, as it is for a field.
#   A template that prints `nodeSelector: {disk: null}` selects no node.
# Behaviour: in a mapping of texts a null is the empty text, and in one of quantities it is 0. The
#   pod goes only to nodes whose label `disk` is empty, and has a CPU limit of 0. A null instead of
#   the whole mapping is none. Nothing warns, also not with --validate=strict.
#   `kubectl create` and `kubectl apply --server-side` of 1.37.1 gave these pods to an API server
#   1.37.2. `kubectl apply` without --server-side removes the nulls first, and its pod has neither
#   the selector nor the limit, so the same file makes two different pods.
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

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

func main() {
	scheme := runtime.NewScheme()
	if err := core.AddToScheme(scheme); err != nil {
		panic(err)
	}
	strict := serializer.NewSerializerWithOptions(
		serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Strict: true})
	for _, spec := range []string{
		`"nodeSelector":{"disk":null}`, `"nodeSelector":null`,
		`"overhead":{"cpu":null,"memory":"1Gi"}`, `"priority":null`,
	} {
		text := `{"apiVersion":"v1","kind":"Pod","spec":{"containers":null,` + spec + `}}`
		pod := &core.Pod{}
		if _, _, err := strict.Decode([]byte(text), nil, pod); err != nil {
			panic(err)
		}
		read, _ := json.Marshal(pod.Spec)
		fmt.Println(spec, "is read as", string(read))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/api/core/v1@v0.37.2 k8s.io/apimachinery/pkg/runtime@v0.37.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
"nodeSelector":{"disk":null} is read as {"containers":null,"nodeSelector":{"disk":""}}
"nodeSelector":null is read as {"containers":null}
"overhead":{"cpu":null,"memory":"1Gi"} is read as {"containers":null,"overhead":{"cpu":"0","memory":"1Gi"}}
"priority":null is read as {"containers":null}
END
