#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/util/strategicpatch) with k8s.io/api 0.37.2, by which
#   `kubectl patch` and `kubectl apply` change an object; sigs.k8s.io/structured-merge-diff/v6 6.4.2,
#   by which the API server merges server-side apply.
# Guess, written before the run: of two variables with one name, which the API server takes with a
#   warning, a patch changes the last, which the container gets, or both.
# Behaviour: a strategic merge patch changes the first one. The container keeps its value. A patch
#   that deletes by the name deletes both. Server-side apply leaves one variable with the new value.
# Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const schema = `
types:
- name: list
  list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}
- name: item
  map: {fields: [{name: name, type: {scalar: string}}, {name: value, type: {scalar: string}}]}
`
const live = `[{"name":"A","value":"first"},{"name":"A","value":"last"}]`

func main() {
	for _, patch := range []string{
		`[{"name":"A","value":"new"}]`, `[{"name":"A","$patch":"delete"}]`,
	} {
		after, err := strategicpatch.StrategicMergePatch(
			[]byte(`{"env":`+live+`}`), []byte(`{"env":`+patch+`}`), corev1.Container{})
		fmt.Println("patch", patch, string(after), err)
	}
	parser, err := typed.NewParser(schema)
	if err != nil {
		panic(err)
	}
	list := parser.Type("list")
	before, _ := list.FromYAML(live, typed.AllowDuplicates)
	applied, _ := list.FromYAML(`[{"name":"A","value":"new"}]`)
	merged, err := before.Merge(applied)
	fmt.Println("apply", merged.AsValue().Unstructured(), err)
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go get sigs.k8s.io/structured-merge-diff/v6@v6.4.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
patch [{"name":"A","value":"new"}] {"env":[{"name":"A","value":"new"},{"name":"A","value":"last"}]} <nil>
patch [{"name":"A","$patch":"delete"}] {"env":[]} <nil>
apply [map[name:A value:new]] <nil>
END
