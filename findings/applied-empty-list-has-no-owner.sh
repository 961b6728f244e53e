#!/bin/sh
# Software: sigs.k8s.io/structured-merge-diff/v6 6.4.2, by which the API server merges
#   server-side apply and keeps managedFields.
# Guess, written before the run: a client that applies an empty list by key, and then leaves it
#   out, removes it. So it is with an empty map.
# Behaviour: the map has an owner and goes. The list has no owner from the start, and stays. If the
#   list had an item before, [] does not empty it but removes it from the object.
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

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const schema = `types: [{name: object, map: {fields: [
  {name: map, type: {map: {elementType: {scalar: string}}}}, {name: list, type: {list: {
    elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}]}},
  {name: item, map: {fields: [{name: name, type: {scalar: string}}]}}]`

type one struct{}

func (one) IsMissingVersionError(error) bool { return false }
func (one) Convert(o *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return o, nil
}

func main() {
	parser, _ := typed.NewParser(schema)
	for _, texts := range [][]typed.YAMLObject{
		{"map: {}", "{}"}, {"list: []", "{}"}, {"list: [{name: a}]", "list: []"},
	} {
		live, _ := parser.Type("object").FromYAML("{}")
		managers := fieldpath.ManagedFields{}
		for _, text := range texts {
			applied, _ := parser.Type("object").FromYAML(text)
			updater := (&merge.UpdaterBuilder{Converter: one{}, ReturnInputOnNoop: true}).BuildUpdater()
			live, managers, _ = updater.Apply(live, applied, "v1", managers, "client", false)
			fmt.Println(text, "->", live.AsValue().Unstructured(), "owners", len(managers))
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/structured-merge-diff/v6/merge@v6.4.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
map: {} -> map[map:map[]] owners 1
{} -> <nil> owners 0
list: [] -> map[list:[]] owners 0
{} -> map[list:[]] owners 0
list: [{name: a}] -> map[list:[map[name:a]]] owners 1
list: [] -> <nil> owners 0
END
