#!/bin/sh
# Software: k8s.io/client-go 0.37.2 (util/jsonpath), the library of `kubectl -o jsonpath`, which
#   sets AllowMissingKeys; jsonpath-rfc9535 1.0.1 of Python.
# Guess, written before the run: a slice is cut to the list, as in RFC 9535 and in Python.
# Behaviour: [0:10] and [-5:] of three items are errors. An index in an empty list is one, too,
#   though it is none in an item that lacks the list. So a path of several pods fails if one of
#   them has an empty list.
# Seen on 2026-11-30: the lines below.
# Needs Go 1.26, Python 3.11, the Go module proxy and PyPI. Ends with 1 if it is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check jsonpath-rfc9535==1.0.1
cat >main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

func main() {
	var object any
	json.Unmarshal([]byte(os.Args[1]), &object)
	for _, path := range os.Args[2:] {
		var found strings.Builder
		parsed := jsonpath.New("").AllowMissingKeys(true)
		parsed.Parse("{." + path + "}")
		if err := parsed.Execute(&found, object); err != nil {
			found.WriteString(err.Error())
		}
		fmt.Println("kubectl", path+":", found.String())
	}
}
GO
cat >main.py <<'PYTHON'
import json
import sys

import jsonpath_rfc9535

for path in sys.argv[2:]:
    nodes = jsonpath_rfc9535.find(f"$.{path}", json.loads(sys.argv[1]))
    print("Python", f"{path}:", *nodes.values())
PYTHON
set -- '{"a": ["x", "y", "z"], "pods": [{"n": [1]}, {}], "more": [{"n": [1]}, {}, {"n": []}]}' \
	'a[0:10]' 'a[-5:]' 'pods[*].n[0]' 'more[*].n[0]'
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go/util/jsonpath@v0.37.2 >/dev/null 2>&1
go run . "$@" >seen
venv/bin/python main.py "$@" >>seen
cat seen
diff seen - <<'END'
kubectl a[0:10]: array index out of bounds: index 9, length 3
kubectl a[-5:]: array index out of bounds: index -2, length 3
kubectl pods[*].n[0]: 1
kubectl more[*].n[0]: array index out of bounds: index 0, length 0
Python a[0:10]: x y z
Python a[-5:]: x y z
Python pods[*].n[0]: 1
Python more[*].n[0]: 1
END
