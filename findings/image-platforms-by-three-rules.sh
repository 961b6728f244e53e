#!/bin/sh
# Software: github.com/containerd/platforms 1.0.0-rc.5, by which containerd 2.4 picks an
#   image; go.podman.io/image/v5 5.42.1, by which CRI-O does; go-containerregistry 0.22.1.
# Guess, written before the run: each picks images of the node's own architecture only, so an index
#   with linux/386 alone has none for amd64, and one with linux/arm/v7 none for arm64.
# Behaviour: containerd on amd64 also takes linux/386, and on arm64 each linux/arm, when the index
#   has nothing better. So an image starts on its nodes and is not found on those of CRI-O. For
#   go-containerregistry, an image of a newer variant, as amd64/v3, satisfies linux/amd64 as well.
# Seen on 2026-11-30: the lines below, with the node first.
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

	"finding/crio"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/v1"
	"go.podman.io/image/v5/types"
)

func main() {
	for name, images := range map[string][]string{
		"linux/amd64": {"linux/386", "linux/amd64", "linux/amd64/v3"},
		"linux/arm64": {"linux/arm/v7", "linux/arm64/v8", "linux/arm64/v9"},
	} {
		node := platforms.MustParse(name)
		asked, _ := v1.ParsePlatform(name)
		of := &types.SystemContext{ArchitectureChoice: node.Architecture, OSChoice: "linux"}
		for _, image := range images {
			has, is := platforms.MustParse(image), ""
			if platforms.Only(node).Match(has) {
				is += " containerd"
			}
			for _, want := range crio.WantedPlatforms(of) {
				if crio.MatchesPlatform(has, want) {
					is += " CRI-O"
				}
			}
			if offered, _ := v1.ParsePlatform(image); offered.Satisfies(*asked) {
				is += " go-containerregistry"
			}
			fmt.Println(name, "takes", image+":"+is)
		}
	}
}
GO
go mod init finding >/dev/null 2>&1
source=$(go mod download -json go.podman.io/image/v5@v5.42.1 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
mkdir crio && cp "$source/internal/pkg/platform/platform_matcher.go" crio
sed -i 's/^package platform$/package crio/' crio/platform_matcher.go
go get go.podman.io/image/v5@v5.42.1 github.com/containerd/platforms@v1.0.0-rc.5 \
	github.com/google/go-containerregistry/pkg/v1@v0.22.1 >/dev/null 2>&1
go run -gcflags=all='-N -l' . | sort >seen
cat seen
diff seen - <<'END'
linux/amd64 takes linux/386: containerd
linux/amd64 takes linux/amd64/v3: go-containerregistry
linux/amd64 takes linux/amd64: containerd CRI-O go-containerregistry
linux/arm64 takes linux/arm/v7: containerd
linux/arm64 takes linux/arm64/v8: containerd CRI-O go-containerregistry
linux/arm64 takes linux/arm64/v9: go-containerregistry
END
