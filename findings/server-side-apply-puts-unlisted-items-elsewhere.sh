#!/bin/sh
# Software: sigs.k8s.io/structured-merge-diff/v6 6.4.2, by which the API server merges
#   server-side apply.
# Guess, written before the run: an apply that lists two of three items of a list by key, in their
#   other order, puts them in that order and the unlisted one last: a b c becomes c a b.
# Behaviour: it becomes b c a: the unlisted item moves to the front. An apply of b and a gives b c a,
#   too: there, the unlisted item comes between them. For init containers of a template, this
#   decides which one runs when, though the apply does not name that one.
# Source: kubernetes/kubernetes#106191 is the change to the order of the request.
# Seen on 2026-11-29: the lines below.
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

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// The same kind of list as a pod's init containers: its items are merged by their name.
const schema = `
types:
- name: list
  list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}
- name: item
  map: {fields: [{name: name, type: {scalar: string}}]}
`

func main() {
	parser, err := typed.NewParser(schema)
	if err != nil {
		panic(err)
	}
	list := parser.Type("list")
	live, _ := list.FromYAML("[{name: a}, {name: b}, {name: c}]")
	for _, text := range []string{
		"[{name: c}, {name: a}]",
		"[{name: b}, {name: a}]",
		"[{name: a}, {name: c}]",
	} {
		applied, _ := list.FromYAML(typed.YAMLObject(text))
		merged, err := live.Merge(applied)
		if err != nil {
			panic(err)
		}
		fmt.Print(text, ":")
		for _, item := range merged.AsValue().Unstructured().([]any) {
			fmt.Print(" ", item.(map[string]any)["name"])
		}
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/structured-merge-diff/v6/typed@v6.4.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
[{name: c}, {name: a}]: b c a
[{name: b}, {name: a}]: b c a
[{name: a}, {name: c}]: a b c
END
