#!/bin/sh
# Software: github.com/distribution/reference 0.6.0, by which the kubelet, containerd 2.4 and CRI-O
#   read the name of an image; github.com/google/go-containerregistry 0.22.1, by which Tekton and
#   others look up images.
# Guess, written before the run: names of images have no capital letters, so both refuse
#   Myuser/app:1, and DOCKER.IO is Docker Hub, as host names have no case.
# Behaviour: the first part of a name with a capital letter is a registry, also without a dot or a
#   port. Myuser/app:1 is pulled from the host Myuser. go-containerregistry refuses it. DOCKER.IO is
#   a registry of its own for both, and gets no library/. The second part may have no capitals.
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

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	for _, text := range []string{
		"myuser/app:1", "Myuser/app:1", "myuser/App:1", "docker.io/app:1", "DOCKER.IO/app:1",
	} {
		node, lookup := "refused", "refused"
		if named, err := reference.ParseNormalizedNamed(text); err == nil {
			node = reference.Domain(named) + " " + reference.Path(named)
		}
		if tag, err := name.NewTag(text); err == nil {
			lookup = tag.RegistryStr() + " " + tag.RepositoryStr()
		}
		fmt.Printf("%s: %s; %s\n", text, node, lookup)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/distribution/reference@v0.6.0 >/dev/null 2>&1
go get github.com/google/go-containerregistry@v0.22.1 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
myuser/app:1: docker.io myuser/app; index.docker.io myuser/app
Myuser/app:1: Myuser app; refused
myuser/App:1: refused; refused
docker.io/app:1: docker.io library/app; index.docker.io library/app
DOCKER.IO/app:1: DOCKER.IO app; DOCKER.IO app
END
