#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (util/yaml), by which kubectl reads files, and
#   sigs.k8s.io/kustomize/kyaml 0.21.1 (kio), by which kustomize does.
# Guess, written before the run: both read all objects of a file, or name an error, for a stream of
#   JSON objects and for YAML 1.2 with `...` after a document, `--- {a: 1}` or a line `%YAML 1.2`.
# Behaviour: what follows `...` is dropped without an error, unless it begins with `---`. Of a stream
#   of JSON objects, which kubectl reads, kustomize takes the first and drops the others without an
#   error. `--- {a: 1}` and `%YAML 1.2` are errors, but kustomize reads the former on the first line.
# Seen on 2026-12-01: the lines below. Needs Go 1.26 or later and the Go module proxy. Ends with 1 if
#   the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/kyaml/kio"
)

const a, b = `{"kind": "A"}`, `{"kind": "B"}`

func main() {
	for _, file := range []string{a + "\n" + b, a + "\n---\n" + b, "kind: A\n...\nkind: B",
		"kind: A\n...\n---\nkind: B", "--- " + a, "kind: A\n--- " + b, "%YAML 1.2\n---\nkind: A"} {
		fmt.Printf("%q kubectl:", file)
		file += "\n"
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(file), 4096)
		for {
			object := struct{ Kind string }{}
			err := decoder.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				fmt.Print(" error")
				break
			}
			fmt.Print(" ", object.Kind)
		}
		fmt.Print(", kustomize:")
		nodes, err := (&kio.ByteReader{Reader: strings.NewReader(file)}).Read()
		for _, node := range nodes {
			fmt.Print(" ", node.GetKind())
		}
		fmt.Println(map[bool]string{true: " error"}[err != nil])
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery@v0.37.2 sigs.k8s.io/kustomize/kyaml@v0.21.1 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
"{\"kind\": \"A\"}\n{\"kind\": \"B\"}" kubectl: A B, kustomize: A
"{\"kind\": \"A\"}\n---\n{\"kind\": \"B\"}" kubectl: A B, kustomize: A B
"kind: A\n...\nkind: B" kubectl: A, kustomize: A
"kind: A\n...\n---\nkind: B" kubectl: A B, kustomize: A B
"--- {\"kind\": \"A\"}" kubectl: error, kustomize: A
"kind: A\n--- {\"kind\": \"B\"}" kubectl: error, kustomize: error
"%YAML 1.2\n---\nkind: A" kubectl: error, kustomize: error
END
