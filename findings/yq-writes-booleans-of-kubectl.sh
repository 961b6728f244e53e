#!/bin/sh
# Software: github.com/mikefarah/yq/v4 4.54.3 (pkg/yqlib), and sigs.k8s.io/yaml 1.6.0, by which
#   kubectl reads manifests.
# Guess, written before the run: `yq '.a = "on"'` writes the quotes that kubectl needs to read a
#   text, as it does for "true", "010" and "1e3".
# Behaviour: it writes on, off, yes, no, y and n without quotes. kubectl reads booleans, so the API
#   server refuses the variable or annotation. The quotes stay where the value that is replaced has
#   some.
# Source: YAML 1.2, which yq follows, has no such booleans. kubectl's parser also has those of YAML
#   1.1. Seen on 2026-12-01: the lines below.
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
	"strings"

	"github.com/mikefarah/yq/v4/pkg/yqlib"
	"sigs.k8s.io/yaml"
)

func main() {
	yqlib.InitExpressionParser()
	preferences := yqlib.ConfiguredYamlPreferences
	for _, before := range []string{"a: x\n", "a: \"x\"\n"} {
		for _, value := range []string{"on", "yes", "n", "true", "010", "1e3"} {
			after, err := yqlib.NewStringEvaluator().Evaluate(`.a = "`+value+`"`, before,
				yqlib.NewYamlEncoder(preferences), yqlib.NewYamlDecoder(preferences))
			if err != nil {
				panic(err)
			}
			var read map[string]any
			if err := yaml.Unmarshal([]byte(after), &read); err != nil {
				panic(err)
			}
			fmt.Printf("%s -> %s: %T\n", strings.TrimSpace(before), strings.TrimSpace(after), read["a"])
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/mikefarah/yq/v4@v4.54.3 sigs.k8s.io/yaml@v1.6.0 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen 2>/dev/null
cat seen
diff seen - <<'END'
a: x -> a: on: bool
a: x -> a: yes: bool
a: x -> a: n: bool
a: x -> a: "true": string
a: x -> a: "010": string
a: x -> a: "1e3": string
a: "x" -> a: "on": string
a: "x" -> a: "yes": string
a: "x" -> a: "n": string
a: "x" -> a: "true": string
a: "x" -> a: "010": string
a: "x" -> a: "1e3": string
END
