#!/bin/sh
# Software: github.com/fluxcd/cli-utils 1.2.2 (pkg/kstatus/status), by which `--wait` of Helm
#   4.3.2 finds what is ready. For hooks, and for --wait-for-jobs, Helm has rules of its own.
# Guess, written before the run: a Job that runs is InProgress, a Pod that failed is Failed, and one
#   whose container is in CrashLoopBackOff is InProgress.
# Behaviour: the running Job is Current, that is ready, and so is a Job with the condition
#   FailureTarget and the failed Pod. A container in CrashLoopBackOff makes the Pod Failed, an init
#   container does not. A Pod that cannot be scheduled for now is Failed, while one that cannot pull
#   its image is InProgress.
# Seen on 2026-11-30: the lines below.
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

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	const waits = "Statuses: [{name: a, state: {waiting: {reason: "
	for _, text := range []string{
		"kind: Job, apiVersion: batch/v1, status: {}",
		"kind: Job, apiVersion: batch/v1, status: {startTime: '2026-11-30T00:00:00Z', active: 1}",
		"kind: Job, apiVersion: batch/v1, status: {startTime: '2026-11-30T00:00:00Z', " +
			"conditions: [{type: FailureTarget, status: 'True'}]}",
		"kind: Pod, status: {phase: Failed}",
		"kind: Pod, status: {phase: Running, container" + waits + "CrashLoopBackOff}}}]}",
		"kind: Pod, status: {phase: Pending, initContainer" + waits + "CrashLoopBackOff}}}]}",
		"kind: Pod, status: {phase: Pending, container" + waits + "ImagePullBackOff}}}]}",
		"kind: Pod, status: {phase: Pending, conditions: " +
			"[{type: PodScheduled, status: 'False', reason: Unschedulable}]}",
	} {
		object := map[string]any{"apiVersion": "v1"}
		if err := yaml.Unmarshal([]byte("{"+text+"}"), &object); err != nil {
			panic(err)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Status, "<-", text)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/fluxcd/cli-utils/pkg/kstatus/status@v1.2.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
InProgress <- kind: Job, apiVersion: batch/v1, status: {}
Current <- kind: Job, apiVersion: batch/v1, status: {startTime: '2026-11-30T00:00:00Z', active: 1}
Current <- kind: Job, apiVersion: batch/v1, status: {startTime: '2026-11-30T00:00:00Z', conditions: [{type: FailureTarget, status: 'True'}]}
Current <- kind: Pod, status: {phase: Failed}
Failed <- kind: Pod, status: {phase: Running, containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}
InProgress <- kind: Pod, status: {phase: Pending, initContainerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}
InProgress <- kind: Pod, status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ImagePullBackOff}}}]}
Failed <- kind: Pod, status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
END
