#!/bin/sh
# Software: github.com/fluxcd/pkg/envsubst 1.8.0, by which Flux substitutes variables in what it
#   applies (postBuild), and github.com/drone/envsubst 1.0.3, from which it comes.
# Guess, written before the run: ${n:+x}, ${n: -4}, ${n:?x} and patterns as [a-f] give what bash
#   gives, as ${n:-x}, ${n##*/} and ${n/a/b} do. A form that the library lacks is an error.
# Behaviour: ${n:+x} is ${n:-x}, so x stands where the variable is empty, and not where it is set.
#   ${n:?x} gives x instead of an error. ${n: -4} is the whole value, and [a-f] in a pattern matches
#   nothing. Only forms without a colon, as ${n-x}, are refused.
# Source: the README of drone/envsubst lists :+, :? and - as unsupported. Seen on 2026-12-01: the lines
#   below.
# Needs Go 1.26 or later, bash and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os/exec"

	drone "github.com/drone/envsubst"
	flux "github.com/fluxcd/pkg/envsubst"
)

func main() {
	values := map[string]string{"set": "team/app-ab12", "empty": ""}
	for _, text := range []string{"${set##*/}", "${empty:-x}", "${set:+x}", "${empty:+x}", "${empty:?x}",
		"${set: -4}", "${set%[a-f]*}", "${set/[0-9]/x}", "${set-x}"} {
		command := exec.Command("bash", "-c", `printf %s "`+text+`"`)
		command.Env = []string{"set=" + values["set"], "empty="}
		bash, failed := command.Output()
		ofFlux, fluxRefuses := flux.Eval(text, func(name string) (string, bool) {
			value, isSet := values[name]
			return value, isSet
		})
		ofDrone, droneRefuses := drone.Eval(text, func(name string) string { return values[name] })
		if ofFlux != ofDrone || (fluxRefuses == nil) != (droneRefuses == nil) {
			panic("Flux and drone differ: " + text)
		}
		fmt.Printf("%s bash: %s, error: %t, Flux: %s, error: %t\n",
			text, bash, failed != nil, ofFlux, fluxRefuses != nil)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/fluxcd/pkg/envsubst@v1.8.0 github.com/drone/envsubst@v1.0.3 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
${set##*/} bash: app-ab12, error: false, Flux: app-ab12, error: false
${empty:-x} bash: x, error: false, Flux: x, error: false
${set:+x} bash: x, error: false, Flux: team/app-ab12, error: false
${empty:+x} bash: , error: false, Flux: x, error: false
${empty:?x} bash: , error: true, Flux: x, error: false
${set: -4} bash: ab12, error: false, Flux: team/app-ab12, error: false
${set%[a-f]*} bash: team/app-a, error: false, Flux: team/app-ab12, error: false
${set/[0-9]/x} bash: team/app-abx2, error: false, Flux: team/app-ab12, error: false
${set-x} bash: team/app-ab12, error: false, Flux: ${set-x}, error: true
END
