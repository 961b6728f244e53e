#!/bin/sh
# Software: kind 0.33.0; since 0.32.0 (sigs.k8s.io/kind, pkg/internal/patch/toml.go).
# Guess, written before the run: a text in containerdConfigPatches with `version = 3`, as
#   containerd 2 recommends, is merged into the node's configuration, or kind reports an error.
# Behaviour: kind's node images have a main file of version 2. kind leaves out each patch that states
#   another version, without an error or a message. The same text without `version` is merged.
# Seen on 2026-11-28: "version = 3: no error, left out" and "no version: no error, merged"
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS=-modcacherw GOMODCACHE="$directory/modules"
module=$(go mod download -json sigs.k8s.io/kind@v0.33.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$module" kind && chmod -R u+w kind && cd kind
grep -m 1 '^version' images/base/files/etc/containerd/config.toml
mkdir pkg/internal/finding
# The package is internal, so the program has to be inside the module.
cat >pkg/internal/finding/main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/kind/pkg/internal/patch"
)

const table = "[plugins.\"io.containerd.snapshotter.v1.overlayfs\"]\nmount_options = [\"volatile\"]\n"

func merged(name, text string) bool {
	main, err := os.ReadFile("images/base/files/etc/containerd/config.toml")
	if err != nil {
		panic(err)
	}
	result, err := patch.ContainerdTOML(string(main), []string{text}, nil)
	if err != nil {
		fmt.Println(name+":", err)
		os.Exit(1)
	}
	found := strings.Contains(result, "volatile")
	fmt.Println(name+": no error,", map[bool]string{true: "merged", false: "left out"}[found])
	return found
}

func main() {
	if merged("version = 3", "version = 3\n"+table) || !merged("no version", table) {
		os.Exit(1)
	}
}
GO
go run ./pkg/internal/finding
