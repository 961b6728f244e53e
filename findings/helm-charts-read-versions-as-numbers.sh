#!/bin/sh
# Software: helm.sh/helm/v4 4.3.2 (pkg/chart/v2/loader), which reads Chart.yaml.
# Guess, written before the run: a version without quotes, as 1.10, is either that text or an error,
#   since the field is a string.
# Behaviour: it is read as a number and written as a text again: 1.10 is 1.1, and 1.30 is 1.3. So
#   `kubeVersion: 1.30` fits Kubernetes 1.3, a dependency of 1.10 is one of 1.1, and the chart has
#   the version 1.1, without an error. Annotations change in the same way: 0644 is 420, and yes is
#   true.
# Source: convertToJSONableObject() in sigs.k8s.io/yaml. Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
mkdir chart
cat >chart/Chart.yaml <<'END'
apiVersion: v2
name: a
version: 1.10
appVersion: 1.10
kubeVersion: 1.30
dependencies: [{name: b, version: 1.10, repository: "https://charts.example"}]
annotations: {mode: 0644, beta: yes}
END
cat >main.go <<'GO'
package main

import (
	"fmt"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func main() {
	chart, err := loader.LoadDir("chart")
	if err != nil {
		panic(err)
	}
	data := chart.Metadata
	fmt.Println("error:", chart.Validate())
	fmt.Println(data.Version, data.AppVersion, data.KubeVersion, data.Dependencies[0].Version, data.Annotations)
}
GO
go mod init finding >/dev/null 2>&1
go get helm.sh/helm/v4/pkg/chart/v2/loader@v4.3.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen 2>/dev/null
cat seen
diff seen - <<'END'
error: <nil>
1.1 1.1 1.3 1.1 map[beta:true mode:420]
END
