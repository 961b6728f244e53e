#!/bin/sh
# Software: gopkg.in/evanphx/json-patch.v4 4.13.0, by which the API server applies JSON patches;
#   jsonpatch 1.48 of Python.
# Guess, written before the run: RFC 6901 has no negative index, so both refuse /l/-1. Nor has it
#   a leading zero, and a `test` of RFC 6902 compares numbers by value.
# Behaviour: the Go library counts from the end. `remove` at -1 takes the last item, while `add` at
#   -1 puts one behind it. It reads 01 and +1 as 1, and a `test` compares the text of a number.
#   Python's library refuses the three indexes, and compares numbers by value.
# Seen on 2026-11-30: the lines below.
# Needs Go 1.26, Python 3.11, the Go module proxy and PyPI. Ends with 1 if it is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check jsonpatch==1.48
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	for _, text := range os.Args[2:] {
		patch, _ := jsonpatch.DecodePatch([]byte("[" + text + "]"))
		patched, err := patch.Apply([]byte(os.Args[1]))
		if err != nil {
			patched = []byte("refused")
		}
		fmt.Println("Go", text, string(patched))
	}
}
GO
cat >main.py <<'PYTHON'
import json
import sys

import jsonpatch

for text in sys.argv[2:]:
    try:
        patched = json.dumps(jsonpatch.apply_patch(json.loads(sys.argv[1]), f"[{text}]"))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        patched = "refused"
    print("Python", text, patched)
PYTHON
set -- '{"l": ["a", "b"], "n": 1.0}' '{"op":"remove","path":"/l/-1"}' \
	'{"op":"add","path":"/l/-1","value":"x"}' '{"op":"remove","path":"/l/01"}' \
	'{"op":"test","path":"/n","value":1}'
go mod init finding >/dev/null 2>&1
go get gopkg.in/evanphx/json-patch.v4@v4.13.0 >/dev/null 2>&1
go run . "$@" >seen
venv/bin/python main.py "$@" >>seen
cat seen
diff seen - <<'END'
Go {"op":"remove","path":"/l/-1"} {"l":["a"],"n":1.0}
Go {"op":"add","path":"/l/-1","value":"x"} {"l":["a","b","x"],"n":1.0}
Go {"op":"remove","path":"/l/01"} {"l":["a"],"n":1.0}
Go {"op":"test","path":"/n","value":1} refused
Python {"op":"remove","path":"/l/-1"} refused
Python {"op":"add","path":"/l/-1","value":"x"} refused
Python {"op":"remove","path":"/l/01"} refused
Python {"op":"test","path":"/n","value":1} {"l": ["a", "b"], "n": 1.0}
END
