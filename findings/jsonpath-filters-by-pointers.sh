#!/bin/sh
# Software: k8s.io/client-go 0.37.2 (util/jsonpath), the library of `kubectl -o jsonpath`, which
#   sets AllowMissingKeys.
# Guess, written before the run: a filter by a *bool of a Go object works as one by the field in its
#   decoded JSON: `started == true` finds the same containers in both.
# Behaviour: in a Go object, each comparison with a field of a pointer type is an error, and
#   a filter by the field alone finds every container. In decoded JSON, an item that lacks the field
#   is found neither by == nor by !=.
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
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// These are fields of a ContainerStatus of k8s.io/api, with their types and tags.
type status struct {
	Name    string `json:"name"`
	Started *bool  `json:"started,omitempty"`
}

func main() {
	yes := true
	object := []status{{Name: "a", Started: &yes}, {Name: "b"}}
	var decoded any
	text, _ := json.Marshal(object)
	json.Unmarshal(text, &decoded)
	for _, filter := range []string{"@.started == true", "@.started != true", "@.started"} {
		for i, data := range []any{object, decoded} {
			path := jsonpath.New("").AllowMissingKeys(true)
			if err := path.Parse("{[?(" + filter + ")].name}"); err != nil {
				panic(err)
			}
			found := &strings.Builder{}
			err := path.Execute(found, data)
			fmt.Printf("%s, %s: %q %v\n", []string{"Go", "JSON"}[i], filter, found, err)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go/util/jsonpath@v0.37.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
Go, @.started == true: "" invalid type for comparison
JSON, @.started == true: "a" <nil>
Go, @.started != true: "" invalid type for comparison
JSON, @.started != true: "" <nil>
Go, @.started: "a b" <nil>
JSON, @.started: "a" <nil>
END
