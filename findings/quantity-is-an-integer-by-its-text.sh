#!/bin/sh
# Software: k8s.io/apiserver 0.37.2 (pkg/cel/library), by which admission policies and CRDs
#   evaluate quantity().
# Guess, written before the run: isInteger() says whether the value is whole, so it holds for 1.0
#   and for 1024Ti.
# Behaviour: it depends on how the quantity is written. 1000m equals 1, and is no integer, nor is
#   2000m less 1. 100Ti is none either, and asInteger() fails, while the same number of bytes
#   without a suffix is one.
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
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

func main() {
	env, err := cel.NewEnv(library.Quantity())
	if err != nil {
		panic(err)
	}
	for _, expression := range []string{
		"quantity('1') == quantity('1000m')",
		"quantity('1').isInteger()", "quantity('1.0').isInteger()", "quantity('1000m').isInteger()",
		"quantity('2000m').sub(1).isInteger()", "quantity('10Ti').isInteger()",
		"quantity('100Ti').isInteger()", "quantity('109951162777600').isInteger()",
		"quantity('100Ti').asInteger()",
	} {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			panic(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			panic(err)
		}
		if value, _, err := program.Eval(map[string]any{}); err != nil {
			fmt.Println(expression, "error:", err)
		} else {
			fmt.Println(expression, value)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apiserver/pkg/cel/library@v0.37.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
quantity('1') == quantity('1000m') true
quantity('1').isInteger() true
quantity('1.0').isInteger() false
quantity('1000m').isInteger() false
quantity('2000m').sub(1).isInteger() false
quantity('10Ti').isInteger() true
quantity('100Ti').isInteger() false
quantity('109951162777600').isInteger() true
quantity('100Ti').asInteger() error: cannot convert value to integer
END
