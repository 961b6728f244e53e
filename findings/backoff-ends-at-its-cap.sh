#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/util/wait).
# Guess, written before the run: Cap of a Backoff is the longest delay, so with ten steps from
#   100 ms, the factor 2 and a cap of 500 ms, the function is called ten times, the last times with
#   500 ms between them.
# Behaviour: the first delay that would exceed the cap is the last one. The function is called three
#   times, and the error is the same as after ten. Without the cap, it is called ten times.
# Seen on 2026-11-29: "cap 500ms: 3 calls, timed out waiting for the condition" and
#   "cap 0s: 10 calls, timed out waiting for the condition"
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func main() {
	for _, limit := range []time.Duration{500 * time.Millisecond, 0} {
		calls := 0
		backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: limit}
		if limit == 0 {
			backoff.Duration = time.Millisecond
		}
		err := wait.ExponentialBackoffWithContext(context.Background(), backoff,
			func(context.Context) (bool, error) { calls++; return false, nil })
		fmt.Printf("cap %s: %d calls, %v\n", limit, calls, err)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery/pkg/util/wait@v0.37.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
cap 500ms: 3 calls, timed out waiting for the condition
cap 0s: 10 calls, timed out waiting for the condition
END
