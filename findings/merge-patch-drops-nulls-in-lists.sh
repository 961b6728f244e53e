#!/bin/sh
# Software: gopkg.in/evanphx/json-patch.v4 4.13.0, by which the API server applies merge patches;
#   json-merge-patch 0.3.0 of Python.
# Guess, written before the run: RFC 7386 replaces a list by the list of the patch as it is, so a
#   null in an object inside of the list stays. Only nulls outside of lists delete.
# Behaviour: the Go library also leaves out keys with null of objects that are items of a list. An
#   item that is null itself stays. Python's library does what the RFC says.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS=-modcacherw GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check json-merge-patch==0.3.0
cat >patch.json <<'JSON'
{"list":[{"gone":null,"kept":1},null]}
JSON
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	patch, _ := os.ReadFile("patch.json")
	result, err := jsonpatch.MergePatch([]byte(`{"list": [0]}`), patch)
	fmt.Println("Go", string(result), err)
}
GO
cat >main.py <<'PYTHON'
import json

import json_merge_patch

with open("patch.json") as file:
    result = json_merge_patch.merge({"list": [0]}, json.load(file))
print("Python", json.dumps(result, separators=(",", ":")))
PYTHON
go mod init finding >/dev/null 2>&1
go get gopkg.in/evanphx/json-patch.v4@v4.13.0 >/dev/null 2>&1
go run . >seen
venv/bin/python main.py >>seen
cat seen
diff seen - <<'END'
Go {"list":[{"kept":1},null]} <nil>
Python {"list":[{"gone":null,"kept":1},null]}
END
