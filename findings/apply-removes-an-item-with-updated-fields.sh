#!/bin/sh
# Software: sigs.k8s.io/structured-merge-diff/v6 6.4.2, by which the API server merges
#   server-side apply and keeps managedFields.
# Guess, written before the run: if a client applied an item of a list, another one changed a field
#   of it, and the first leaves the item out, the item stays with its key and the other's field.
# Behaviour: that holds if the other one applied its field. If it updated the object, as a PUT or
#   a patch does, it owns the field but not the item, and the item goes with the field.
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

const schema = `types: [{name: object, map: {fields: [{name: list, type: {list: {
    elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}]}},
  {name: item, map: {fields: [
    {name: name, type: {scalar: string}}, {name: image, type: {scalar: string}}]}}]`

type one struct{}

func (one) IsMissingVersionError(error) bool { return false }
func (one) Convert(o *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return o, nil
}

func main() {
	parser, _ := typed.NewParser(schema)
	read := func(text typed.YAMLObject) *typed.TypedValue {
		object, _ := parser.Type("object").FromYAML(text)
		return object
	}
	updater := (&merge.UpdaterBuilder{Converter: one{}, ReturnInputOnNoop: true}).BuildUpdater()
	for _, verb := range []string{"apply", "update"} {
		live, owners, _ := updater.Apply(
			read("{}"), read("list: [{name: a}]"), "v1", fieldpath.ManagedFields{}, "first", false)
		if other := read("list: [{name: a, image: b}]"); verb == "apply" {
			live, owners, _ = updater.Apply(live, other, "v1", owners, "other", false)
		} else {
			live, owners, _ = updater.Update(live, other, "v1", owners, "other")
		}
		fmt.Println(verb, "by the other:", live.AsValue().Unstructured(), "owners", len(owners))
		live, owners, _ = updater.Apply(live, read("{}"), "v1", owners, "first", false)
		fmt.Println("left out by the first:", live.AsValue().Unstructured(), "owners", len(owners))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/structured-merge-diff/v6/merge@v6.4.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
apply by the other: map[list:[map[image:b name:a]]] owners 2
left out by the first: map[list:[map[image:b name:a]]] owners 1
update by the other: map[list:[map[image:b name:a]]] owners 2
left out by the first: map[list:<nil>] owners 0
END
