#!/bin/sh
# Software: cel-python 0.5.0, and github.com/google/cel-go 0.29.2, the library of the API server 1.37.
# Guess, written before the run: cel-python evaluates an expression of a policy as the Go library
#   does: numbers of different types compare by value, and duration('1d') is an error.
# Behaviour: cel-python refuses each comparison of an integer with a double, at any depth of a map.
#   A JSON field can be either, so `object.ratio < 0.5` fails only for the objects where it is
#   a whole number. It takes '1d' for a day, which Go refuses.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cel-python==0.5.0
set -- "dyn(1) < 1.5" "dyn(1) == 1.0" "dyn({'a': 1}) == dyn({'a': 1.0})" \
	"duration('1d') == duration('24h')"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
)

func main() {
	environment, _ := cel.NewEnv(cel.CrossTypeNumericComparisons(true))
	for _, line := range os.Args[1:] {
		checked, _ := environment.Compile(line)
		program, _ := environment.Program(checked)
		value, _, err := program.Eval(map[string]any{})
		fmt.Println("Go:", line+":", value, "error", err != nil)
	}
}
GO
cat >main.py <<'PYTHON'
import sys

import celpy

environment = celpy.Environment()
for line in sys.argv[1:]:
    try:
        value = environment.program(environment.compile(line)).evaluate({})
    except celpy.CELEvalError as error:
        value = str(error.args[0])[:26]
    print(f"Python: {line}: {value}")
PYTHON
go mod init finding >/dev/null 2>&1
go get github.com/google/cel-go/cel@v0.29.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . "$@" >seen
venv/bin/python main.py "$@" >>seen
cat seen
diff seen - <<'END'
Go: dyn(1) < 1.5: true error false
Go: dyn(1) == 1.0: true error false
Go: dyn({'a': 1}) == dyn({'a': 1.0}): true error false
Go: duration('1d') == duration('24h'): type conversion error from 'string' to 'google.protobuf.Duration' error true
Python: dyn(1) < 1.5: found no matching overload
Python: dyn(1) == 1.0: found no matching overload
Python: dyn({'a': 1}) == dyn({'a': 1.0}): found no matching overload
Python: duration('1d') == duration('24h'): True
END
