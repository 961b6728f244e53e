#!/bin/sh
# Software: sigs.k8s.io/yaml 1.6.0, by which kubectl sends a manifest, and PyYAML 6.0.4, by which
#   Python's clients do; sigs.k8s.io/json, by which the API server decodes both.
# Guess, written before the run: `replicas: 2.0` is a double for both, and the API server, whose
#   field is an integer, refuses it from each client.
# Behaviour: sigs.k8s.io/yaml writes 2.0 and 1e1 as the JSON 2 and 10, so kubectl's manifest is
#   taken. Python sends 2.0, which is refused, and the string "1e1". 0o644 is 420 for one and
#   a string for the other.
# Seen on 2026-11-30: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check PyYAML==6.0.4
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os/exec"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func main() {
	code := "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])), end='')"
	for _, number := range []string{"2", "2.0", "1e1", "0644", "0o644"} {
		text := "replicas: " + number
		byGo, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			panic(err)
		}
		byPython, err := exec.Command("venv/bin/python", "-c", code, text).Output()
		if err != nil {
			panic(err)
		}
		for client, sent := range map[string][]byte{"kubectl": byGo, "Python": byPython} {
			var object struct {
				Replicas int32 `json:"replicas"`
			}
			strict, err := json.UnmarshalStrict(sent, &object)
			fmt.Println(number, client, string(sent), "taken:", err == nil && strict == nil)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/yaml@v1.6.0 sigs.k8s.io/json@v0.0.0-20250730193827-2d320260d730 >/dev/null 2>&1
go run . | sort >seen
cat seen
diff seen - <<'END'
0644 Python {"replicas": 420} taken: true
0644 kubectl {"replicas":420} taken: true
0o644 Python {"replicas": "0o644"} taken: false
0o644 kubectl {"replicas":420} taken: true
1e1 Python {"replicas": "1e1"} taken: false
1e1 kubectl {"replicas":10} taken: true
2 Python {"replicas": 2} taken: true
2 kubectl {"replicas":2} taken: true
2.0 Python {"replicas": 2.0} taken: false
2.0 kubectl {"replicas":2} taken: true
END
