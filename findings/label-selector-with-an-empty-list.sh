#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (pkg/labels), by which `kubectl -l` and the API server's
#   labelSelector parameter are read.
# Guess, written before the run: a comma at the end of the list of values is an error.
# Behaviour: it is valid, as is `in ()`, and states the empty value. `a in ()` selects what has the
#   label with an empty value, and `a in (b,)` selects that as well as `b`. In a LabelSelector of an
#   object, an empty list of values is an error.
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func main() {
	sets := []labels.Set{{"a": ""}, {"a": "b"}, {}}
	for _, text := range []string{"a in ()", "a in (b,)", "a notin (b,)"} {
		selector, err := labels.Parse(text)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s:", text)
		for _, set := range sets {
			if selector.Matches(set) {
				fmt.Printf(" {%v}", set)
			}
		}
		fmt.Println()
	}
	_, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}},
	})
	fmt.Println("object:", err)
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
a in (): {a=}
a in (b,): {a=} {a=b}
a notin (b,): {}
object: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty
END
