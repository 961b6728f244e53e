#!/bin/sh
# Software: sigs.k8s.io/controller-runtime 0.25.2, whose controllers use its priority queue unless
#   told otherwise, and k8s.io/client-go 0.37.2 (util/workqueue), which they used before.
# Guess, written before the run: both queues do the same. An object that was added for later
#   (RequeueAfter) comes at that time, even if an event adds it before, or while a worker has it.
# Behaviour: the priority queue has an object once. If an event adds it first, the later run is
#   dropped, and so it is if an event came while the worker had it. client-go's queue gives both. A
#   reconciler that returns RequeueAfter each time does not notice. One that returns it once, for a
#   deadline, is not called at the deadline.
# Source: lockedAddWithOpts() in priorityqueue.go. Seen on 2026-12-01: the lines below.
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
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type queue = workqueue.TypedRateLimitingInterface[string]

func count(items queue, deliveries *int) {
	for {
		item, _ := items.Get()
		*deliveries++
		items.Done(item)
	}
}

func main() {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	for _, isBusy := range []bool{false, true} {
		for name, items := range map[string]queue{"priority queue:": priorityqueue.New[string]("x"),
			"client-go:": workqueue.NewTypedRateLimitingQueue(limiter)} {
			deliveries := 0
			if isBusy {
				items.Add("object")
				items.Get()
			}
			items.AddAfter("object", 2*time.Second)
			items.Add("object")
			if isBusy {
				items.Done("object")
			}
			go count(items, &deliveries)
			time.Sleep(5 * time.Second)
			fmt.Println("while a worker has it:", isBusy, name, deliveries)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue@v0.25.2 k8s.io/client-go@v0.37.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . | sort >seen
cat seen
diff seen - <<'END'
while a worker has it: false client-go: 2
while a worker has it: false priority queue: 1
while a worker has it: true client-go: 2
while a worker has it: true priority queue: 1
END
