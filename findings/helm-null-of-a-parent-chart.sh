#!/bin/sh
# Software: helm.sh/helm/v4 4.3.2 (pkg/chart/common/util), which merges the values of charts.
# Guess, written before the run: null in the values.yaml of a parent chart removes the default of a
#   subchart, such as a CPU limit, as null in a user's file does.
# Behaviour: it does so only if the user sets some value of that subchart, whichever. With no value
#   of the user, or with those of other charts, the limit stays. So an unrelated
#   `--set sub.x=1` removes it.
#   A user's null removes what the subchart sets, and not what the parent sets: there it stays as
#   null, and toYaml prints it.
# Source: coalesceValues() cleans the parent's nulls where the user has no table of the subchart.
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
	"encoding/json"
	"fmt"

	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

func made(name, values string) *chart.Chart {
	made := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: name, Version: "1.0.0"}}
	if err := yaml.Unmarshal([]byte(values), &made.Values); err != nil {
		panic(err)
	}
	return made
}

func main() {
	for _, set := range []string{"", "x=1", "sub.x=1", "sub.limits.memory=null", "sub.limits.gpu=null"} {
		parent := made("parent", "sub: {limits: {cpu: null, gpu: 1}}")
		parent.AddDependency(made("sub", "limits: {cpu: 1, memory: 1Gi}"))
		user, err := strvals.Parse(set)
		if err != nil {
			panic(err)
		}
		values, err := util.CoalesceValues(parent, user)
		if err != nil {
			panic(err)
		}
		sub, _ := values.Table("sub")
		limits, _ := json.Marshal(sub["limits"])
		fmt.Printf("--set %q: %s\n", set, limits)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get helm.sh/helm/v4/pkg/chart/v2@v4.3.2 helm.sh/helm/v4/pkg/strvals@v4.3.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
--set "": {"cpu":1,"gpu":1,"memory":"1Gi"}
--set "x=1": {"cpu":1,"gpu":1,"memory":"1Gi"}
--set "sub.x=1": {"gpu":1,"memory":"1Gi"}
--set "sub.limits.memory=null": {"gpu":1}
--set "sub.limits.gpu=null": {"gpu":null,"memory":"1Gi"}
END
