#!/bin/sh
# Software: CRI-O 1.36.3 (github.com/cri-o/cri-o, internal/oci/runtime_oci.go), k8s.io/apimachinery 0.36.3.
# Guess, written before the run: CRI-O waits about 5 s for conmon's exit file before it records exit
#   code 255. The comment of waitForExitFile says so, and six steps from 500 ms with the factor 1.2
#   add up to 4.96 s.
# Behaviour: it gives up after 3.72 s. ExponentialBackoff looks six times, and does not sleep after
#   the last look. The numbers are read from CRI-O's source, and the function is the real one.
# Seen on 2026-11-28: "looks 6, gave up after 3.73 s: timed out waiting for the condition"
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS=-modcacherw GOMODCACHE="$directory/modules"
source=$(go mod download -json github.com/cri-o/cri-o@v1.36.3 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
wait_function=$(sed -n '/^func waitForExitFile/,/^}/p' "$source/internal/oci/runtime_oci.go")
backoff=$(printf '%s\n' "$wait_function" | sed -n '/kwait.Backoff{/,/},/p')
printf '%s\n' "$backoff"
cat >main.go <<GO
package main

import (
	"fmt"
	"os"
	"time"

	kwait "k8s.io/apimachinery/pkg/util/wait"
)

func main() {
	looks, start := 0, time.Now()
	err := kwait.ExponentialBackoff(
$backoff
		func() (bool, error) { looks++; return false, nil })
	waited := time.Since(start).Seconds()
	fmt.Printf("looks %d, gave up after %.2f s: %v\n", looks, waited, err)
	if looks != 6 || waited < 3.6 || waited > 4.2 {
		os.Exit(1)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery/pkg/util/wait@v0.36.3 >/dev/null 2>&1
go run .
