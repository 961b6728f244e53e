#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/util/strategicpatch) and the Pod of k8s.io/api 0.37.2,
#   by which `kubectl patch` of its default type is applied.
# Guess, written before the run: a container that a strategic merge patch adds comes after those
#   that are there. Server-side apply puts it there.
# Behaviour: it comes first. If the patch lists a container that is there before the new one, the
#   new one comes right after that one, though the patch changes nothing of it. For init containers,
#   this decides which one runs first.
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
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const pod = `{"spec": {"initContainers": [{"name": "a"}, {"name": "b"}]}}`

func main() {
	for _, items := range []string{
		`{"name": "new"}`,
		`{"name": "new"}, {"name": "a"}`,
		`{"name": "a"}, {"name": "new"}`,
		`{"name": "b"}, {"name": "new"}`,
	} {
		patch := fmt.Sprintf(`{"spec": {"initContainers": [%s]}}`, items)
		text, err := strategicpatch.StrategicMergePatch([]byte(pod), []byte(patch), corev1.Pod{})
		if err != nil {
			panic(err)
		}
		var patched corev1.Pod
		json.Unmarshal(text, &patched)
		fmt.Print(items, ":")
		for _, container := range patched.Spec.InitContainers {
			fmt.Print(" ", container.Name)
		}
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/api/core/v1@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
{"name": "new"}: new a b
{"name": "new"}, {"name": "a"}: new a b
{"name": "a"}, {"name": "new"}: a new b
{"name": "b"}, {"name": "new"}: a b new
END
