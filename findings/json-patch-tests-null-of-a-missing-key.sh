#!/bin/sh
# Software: gopkg.in/evanphx/json-patch.v4 4.13.0, by which the API server applies JSON patches;
#   jsonpatch 1.33 of Python.
# Guess, written before the run: RFC 6902 says that the location that `test` names has to exist, so
#   a test of a missing key with the value null fails, as one with any other value does.
# Behaviour: the Go library takes a missing key for null, so `test` can state that a key is absent.
#   A missing parent or a missing item of a list still fails. Python's library refuses all three.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS=-modcacherw GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check jsonpatch==1.33
cat >main.go <<'GO'
package main

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	for _, path := range []string{"/missing", "/missing/child", "/list/7"} {
		text := fmt.Sprintf(`[{"op": "test", "path": %q, "value": null}]`, path)
		patch, err := jsonpatch.DecodePatch([]byte(text))
		if err != nil {
			panic(err)
		}
		_, err = patch.Apply([]byte(`{"list": [1]}`))
		fmt.Println("Go", path, map[bool]string{true: "passes", false: "fails"}[err == nil])
	}
}
GO
cat >main.py <<'PYTHON'
import jsonpatch

for path in ("/missing", "/missing/child", "/list/7"):
    try:
        jsonpatch.apply_patch({"list": [1]}, [{"op": "test", "path": path, "value": None}])
        print("Python", path, "passes")
    except jsonpatch.JsonPatchException:
        print("Python", path, "fails")
PYTHON
go mod init finding >/dev/null 2>&1
go get gopkg.in/evanphx/json-patch.v4@v4.13.0 >/dev/null 2>&1
go run . >seen
venv/bin/python main.py >>seen
cat seen
diff seen - <<'END'
Go /missing passes
Go /missing/child fails
Go /list/7 fails
Python /missing fails
Python /missing/child fails
Python /list/7 fails
END
