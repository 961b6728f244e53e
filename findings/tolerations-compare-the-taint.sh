#!/bin/sh
# Software: k8s.io/api 0.37.2 (core/v1, ToleratesTaint), by which the scheduler and the kubelet
#   compare tolerations with taints. The operators Gt and Lt are new (KEP-5471).
# Guess, written before the run: `operator: Gt, value: "900"` tolerates a taint whose value is below
#   900, as the toleration is greater than the taint.
# Behaviour: the taint's value stands on the left. Gt with 900 tolerates 950, and not 800. A value
#   with a leading zero, a sign + or a fraction is no number, so it is compared with nothing.
# Seen on 2026-12-01: the lines below.
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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

func main() {
	for _, values := range [][2]string{
		{"800", "900"}, {"900", "900"}, {"950", "900"}, {"-1", "-2"},
		{"0950", "900"}, {"+950", "900"}, {"950.5", "900"}, {"950", ""},
	} {
		taint := corev1.Taint{Key: "sla", Value: values[0], Effect: corev1.TaintEffectNoSchedule}
		fmt.Printf("taint %s, toleration %s:", values[0], values[1])
		for _, operator := range []corev1.TolerationOperator{"Gt", "Lt"} {
			toleration := corev1.Toleration{Key: "sla", Operator: operator, Value: values[1]}
			tolerated := toleration.ToleratesTaint(klog.TODO(), &taint, true)
			fmt.Printf(" %s %t", operator, tolerated)
		}
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/api@v0.37.2 >/dev/null 2>&1
go run . >seen 2>/dev/null
cat seen
diff seen - <<'END'
taint 800, toleration 900: Gt false Lt true
taint 900, toleration 900: Gt false Lt false
taint 950, toleration 900: Gt true Lt false
taint -1, toleration -2: Gt true Lt false
taint 0950, toleration 900: Gt false Lt false
taint +950, toleration 900: Gt false Lt false
taint 950.5, toleration 900: Gt false Lt false
taint 950, toleration : Gt false Lt false
END
