#!/bin/sh
# Software: helm.sh/helm/v4 4.3.2 (pkg/strvals), by which `--set` is read.
# Guess, written before the run: `--set ratio=1.5` is the number that `ratio: 1.5` is in a file of
#   values, and so is 1e3.
# Behaviour: whole numbers are the only numbers. 1.5, 1e3 and a whole number of more than 64 bits
#   stay strings, so a chart whose values.schema.json says "number" refuses `--set ratio=1.5` and
#   takes `--set ratio=1`. `+1` is a number. `{}` is a list of one empty string, though
#   `{a}` is a list of one item.
# Source: typedVal() in parser.go. Seen on 2026-11-30: the lines below.
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

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, text := range []string{"2", "+2", "1.5", "1e3", "12345678901234567890", "{}"} {
		set, err := strvals.Parse("a=" + text)
		if err != nil {
			panic(err)
		}
		values, _ := json.Marshal(set)
		fromFile, err := yaml.YAMLToJSON([]byte("a: " + text))
		if err != nil {
			panic(err)
		}
		fmt.Println(text, "by --set:", string(values), "in a file:", string(fromFile))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get helm.sh/helm/v4/pkg/strvals@v4.3.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
2 by --set: {"a":2} in a file: {"a":2}
+2 by --set: {"a":2} in a file: {"a":2}
1.5 by --set: {"a":"1.5"} in a file: {"a":1.5}
1e3 by --set: {"a":"1e3"} in a file: {"a":1000}
12345678901234567890 by --set: {"a":"12345678901234567890"} in a file: {"a":12345678901234567890}
{} by --set: {"a":[""]} in a file: {"a":{}}
END
