#!/bin/sh
# Software: gomodules.xyz/jsonpatch/v2 2.4.0, by which controller-runtime 0.25.2 makes the patch of
#   a mutating webhook (admission.PatchResponseFromRaw).
# Guess, written before the run: a container that is put first is one `add` at /0, and a container
#   that goes is one `remove` of its index.
# Behaviour: lists are compared index by index. A container that is put first is written over the
#   one that is there, field by field, each one over the next, and the last one is added again. When
#   the first one goes, the last one is removed, and the others are rewritten.
# Source: handleValues() in jsonpatch.go. Seen on 2026-11-29: the lines below.
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

	"gomodules.xyz/jsonpatch/v2"
)

func main() {
	a, b, x := `{"name":"a","image":"i"}`, `{"name":"b","image":"i"}`, `{"name":"x","image":"i"}`
	for _, lists := range [][2]string{
		{a + "," + b, x + "," + a + "," + b}, {x + "," + a + "," + b, a + "," + b}, {a, a + "," + x},
	} {
		patch, err := jsonpatch.CreatePatch([]byte("["+lists[0]+"]"), []byte("["+lists[1]+"]"))
		if err != nil {
			panic(err)
		}
		fmt.Println(lists[0], "->", lists[1])
		for _, operation := range patch {
			fmt.Println(" ", operation.Json())
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get gomodules.xyz/jsonpatch/v2@v2.4.0 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
{"name":"a","image":"i"},{"name":"b","image":"i"} -> {"name":"x","image":"i"},{"name":"a","image":"i"},{"name":"b","image":"i"}
  {"op":"add","path":"/2","value":{"image":"i","name":"b"}}
  {"op":"replace","path":"/0/name","value":"x"}
  {"op":"replace","path":"/1/name","value":"a"}
{"name":"x","image":"i"},{"name":"a","image":"i"},{"name":"b","image":"i"} -> {"name":"a","image":"i"},{"name":"b","image":"i"}
  {"op":"remove","path":"/2"}
  {"op":"replace","path":"/0/name","value":"a"}
  {"op":"replace","path":"/1/name","value":"b"}
{"name":"a","image":"i"} -> {"name":"a","image":"i"},{"name":"x","image":"i"}
  {"op":"add","path":"/1","value":{"image":"i","name":"x"}}
END
