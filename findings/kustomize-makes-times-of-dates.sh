#!/bin/sh
# Software: kustomize 5.8.1, which kubectl 1.37 contains, and k8s.io/apimachinery 0.37.2, with which
#   `kubectl apply -f` reads YAML.
# Guess, written before the run: a date without quotes is the same text for `kubectl apply -k` as for
#   `kubectl apply -f`, in an annotation and in a ConfigMap.
# Behaviour: kustomize makes a time of it: 2026-1-1 and 2026-01-01 become "2026-01-01T00:00:00Z",
#   which no label may be. A time without seconds stays.
# Source: resolve.go in go.yaml.in/yaml/v3 has the type time.Time, and encoding/json writes it as
#   RFC 3339. The parser of kubectl keeps such values as text (goyaml.v2 in sigs.k8s.io/yaml).
# Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >object.yaml <<'END'
apiVersion: v1
kind: ConfigMap
metadata: {name: dates}
data:
  a: 2026-1-1
  b: 2026-01-01
  c: 2026-12-01 10:00:00
  d: 2026-12-01T10:00
END
echo 'resources: [object.yaml]' >kustomization.yaml
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

type object struct{ Data map[string]any }

func main() {
	var applied, built object
	text, _ := os.ReadFile("object.yaml")
	if err := yaml.Unmarshal(text, &applied); err != nil {
		panic(err)
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	if err != nil {
		panic(err)
	}
	text, _ = objects.AsYaml()
	_ = yaml.Unmarshal(text, &built)
	for _, key := range []string{"a", "b", "c", "d"} {
		fmt.Printf("kubectl %q, kustomize %q\n", applied.Data[key], built.Data[key])
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery@v0.37.2 sigs.k8s.io/kustomize/api@v0.21.1 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen 2>/dev/null
cat seen
diff seen - <<'END'
kubectl "2026-1-1", kustomize "2026-01-01T00:00:00Z"
kubectl "2026-01-01", kustomize "2026-01-01T00:00:00Z"
kubectl "2026-12-01 10:00:00", kustomize "2026-12-01T10:00:00Z"
kubectl "2026-12-01T10:00", kustomize "2026-12-01T10:00"
END
