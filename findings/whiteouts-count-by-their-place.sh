#!/bin/sh
# Software: github.com/google/go-containerregistry 0.22.1 (mutate.Extract, which is `crane export`),
#   and containerd 2.4.2 (pkg/archive), by which nodes unpack layers.
# Guess, written before the run: both have the same files, in whichever order a layer lists them. The
#   OCI image specification says that a whiteout hides only what lower layers have.
# Behaviour: of a new file and a whiteout of its name in one layer, containerd has the file if the
#   whiteout comes first, and go-containerregistry if it comes last. An opaque whiteout hides
#   nothing of its own layer. Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	for _, files := range []string{".wh.a a", "a .wh.a", "d/.wh..wh..opq d/new"} {
		image, root := empty.Image, strings.ReplaceAll(files, "/", "-")
		for _, names := range []string{"a d/ d/old", files} {
			var buffer bytes.Buffer
			writer := tar.NewWriter(&buffer)
			for _, name := range strings.Fields(names) {
				writer.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Uid: os.Getuid(), Gid: os.Getgid()})
			}
			writer.Close()
			layer, _ := tarball.LayerFromReader(bytes.NewReader(buffer.Bytes()))
			image, _ = mutate.AppendLayers(image, layer)
			os.MkdirAll(root, 0o755)
			archive.Apply(context.Background(), root, &buffer)
		}
		fmt.Print(files, " crane:")
		reader := tar.NewReader(mutate.Extract(image))
		for header, err := reader.Next(); err == nil; header, err = reader.Next() {
			fmt.Print(" ", header.Name)
		}
		fmt.Print(" containerd:")
		filepath.WalkDir(root, func(path string, _ os.DirEntry, _ error) error {
			fmt.Print(" ", strings.TrimPrefix(path, root))
			return nil
		})
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/google/go-containerregistry@v0.22.1 github.com/containerd/containerd/v2/pkg/archive@v2.4.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen
cat seen
diff seen - <<'END'
.wh.a a crane: d d/old containerd:  /a /d /d/old
a .wh.a crane: a d d/old containerd:  /d /d/old
d/.wh..wh..opq d/new crane: d/new a d containerd:  /a /d /d/new
END
