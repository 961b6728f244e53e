#!/bin/sh
# Software: sigs.k8s.io/yaml 1.6.0, by which kubectl writes `-o yaml`; PyYAML 6.0.4 and ruamel.yaml
#   0.19.1 of Python.
# Guess, written before the run: kubectl leaves a string without quotes only if every parser of YAML
#   reads it as a string. It puts `on`, `12:30` and `1e3` in quotes.
# Behaviour: it writes `=` and `<<` (an argument of a container, for example) without quotes, and
#   neither parser of Python loads the document. A time without a zone becomes a datetime. Go finds
#   no number in 12e4567, as a short commit may be, since it is out of range: ruamel.yaml reads
#   infinity. kubectl's new format KYAML puts all four in quotes.
# Seen on 2026-12-01: the lines below, with PyYAML's value before that of ruamel.yaml.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check PyYAML==6.0.4 ruamel.yaml==0.19.1
cat >main.go <<'GO'
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"
)

func main() {
	documents := [][]string{}
	for _, text := range []string{"on", "12:30", "1e3", "=", "<<", "2026-01-01T00:00:00", "12e4567"} {
		object := map[string]string{"a": text}
		var buffer bytes.Buffer
		written, err := yaml.Marshal(object)
		if err != nil || (&kyaml.Encoder{}).FromObject(object, &buffer) != nil {
			panic(text)
		}
		documents = append(documents, []string{text, string(written), buffer.String()})
	}
	json.NewEncoder(os.Stdout).Encode(documents)
}
GO
cat >main.py <<'PYTHON'
import json, sys, ruamel.yaml, yaml
for text, document, kyaml in json.load(sys.stdin):
    print(document.strip(), end="")
    for load in yaml.safe_load, ruamel.yaml.YAML(typ="safe").load:
        assert load(kyaml) == {"a": text}
        try:
            print(",", repr(load(document)["a"]), end="")
        except (yaml.YAMLError, ruamel.yaml.YAMLError) as error:
            print(",", type(error).__name__, end="")
    print()
PYTHON
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/yaml@v1.6.0 >/dev/null 2>&1
go run . | venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
a: "on", 'on', 'on'
a: "12:30", '12:30', '12:30'
a: "1e3", '1e3', '1e3'
a: =, ConstructorError, ConstructorError
a: <<, ConstructorError, ConstructorError
a: 2026-01-01T00:00:00, datetime.datetime(2026, 1, 1, 0, 0), datetime.datetime(2026, 1, 1, 0, 0)
a: 12e4567, '12e4567', inf
END
