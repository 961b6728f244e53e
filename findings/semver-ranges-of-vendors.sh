#!/bin/sh
# Software: github.com/blang/semver/v4 4.0.0, which Kyverno and the Prometheus operator require, and
#   github.com/Masterminds/semver/v3 3.5.0, by which Helm reads a chart's kubeVersion.
# Guess, written before the run: both find 1.30.5 in the range >1.30.
# Behaviour: Masterminds reads >1.30 as 1.31 or later, blang refuses it. No version at all satisfies
#   !=1.30.x of blang (blang/semver#80). With a vendor's suffix, as GKE's, a version is
#   earlier than without: for blang, 1.31.0-gke.1 is one of 1.30.x, and for Masterminds it is in no
#   range that has no suffix itself.
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

	helm "github.com/Masterminds/semver/v3"
	"github.com/blang/semver/v4"
)

func main() {
	for _, text := range []string{">1.30", "1.30.x", "!=1.30.x", ">=1.30.0"} {
		isIn, refused := semver.ParseRange(text)
		constraint, err := helm.NewConstraint(text)
		if err != nil {
			panic(err)
		}
		fmt.Print(text, ", blang:")
		for _, version := range []string{"1.29.0", "1.30.5", "1.31.0-gke.1", "1.31.0"} {
			if refused == nil && isIn(semver.MustParse(version)) {
				fmt.Print(" ", version)
			}
		}
		fmt.Print(", refused: ", refused != nil, ", Masterminds:")
		for _, version := range []string{"1.29.0", "1.30.5", "1.31.0-gke.1", "1.31.0"} {
			if constraint.Check(helm.MustParse(version)) {
				fmt.Print(" ", version)
			}
		}
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/blang/semver/v4@v4.0.0 github.com/Masterminds/semver/v3@v3.5.0 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
>1.30, blang:, refused: true, Masterminds: 1.31.0
1.30.x, blang: 1.30.5 1.31.0-gke.1, refused: false, Masterminds: 1.30.5
!=1.30.x, blang:, refused: false, Masterminds: 1.29.0 1.31.0
>=1.30.0, blang: 1.30.5 1.31.0-gke.1 1.31.0, refused: false, Masterminds: 1.30.5 1.31.0
END
