#!/bin/sh
# Software: the kubelet 1.37.2 (k8s.io/kubernetes, pkg/kubelet/util/env), which reads the file
#   that env[].valueFrom.fileKeyRef names (KEP-3721).
# Guess, written before the run: the file is what `docker run --env-file` and dotenv read, so A=1
#   and B="x" are values, and a line that the format does not have, as `export C=`, is an error.
# Behaviour: a value has to stand in single quotes, else the file is refused. `export C='3'` is no
#   error: the variable's name is "export C", so C is not found. A bad line counts only if it stands
#   above the key that is asked for, so with two keys of one file the second one can fail alone.
# Seen on 2026-11-29: the six lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS=-modcacherw GOMODCACHE="$directory/modules"
source=$(go mod download -json k8s.io/kubernetes@v1.37.2 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
go mod init finding >/dev/null 2>&1
mkdir env
cp "$source/pkg/kubelet/util/env/env_util.go" env/
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"finding/env"
)

func main() {
	for _, each := range [][2]string{
		{"A=1\n", "A"},
		{"B=\"x\"\n", "B"},
		{"B='x' # a comment\n", "B"},
		{"export C='3'\n", "C"},
		{"A='1'\nB=2\n", "A"},
		{"A=1\nB='2'\n", "B"},
	} {
		os.WriteFile("file", []byte(each[0]), 0o600)
		value, err := env.ParseEnv("file", each[1])
		if err != nil {
			value = "refused"
		}
		fmt.Printf("%s of %q: %q\n", each[1], each[0], value)
	}
}
GO
go run . >seen
cat seen
diff seen - <<'END'
A of "A=1\n": "refused"
B of "B=\"x\"\n": "refused"
B of "B='x' # a comment\n": "x"
C of "export C='3'\n": ""
A of "A='1'\nB=2\n": "1"
B of "A=1\nB='2'\n": "refused"
END
