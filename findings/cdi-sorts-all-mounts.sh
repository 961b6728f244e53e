#!/bin/sh
# Software: tags.cncf.io/container-device-interface 1.1.2 (pkg/cdi), by which containerd, CRI-O and
#   Podman add a device's edits to a container.
# Guess, written before the run: a device's mounts are appended to those of the container, in the
#   order of the device's specification.
# Behaviour: all mounts are sorted by the number of parts of their path, so the container's own
#   mounts change their order as well: /data/a of the pod, listed first, is mounted after /b.
#   A device without mounts leaves them as they are.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
mkdir cdi
cat >cdi/vendor.json <<'JSON'
{"cdiVersion": "0.6.0", "kind": "vendor.example/device", "devices": [
  {"name": "plain", "containerEdits": {"env": ["A=1"]}},
  {"name": "mounts", "containerEdits": {"mounts": [
    {"hostPath": "/h", "containerPath": "/opt/vendor/lib"}, {"hostPath": "/h", "containerPath": "/v"}]}}]}
JSON
cat >main.go <<'GO'
package main

import (
	"fmt"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	cache, err := cdi.NewCache(cdi.WithSpecDirs("cdi"), cdi.WithAutoRefresh(false))
	if err != nil {
		panic(err)
	}
	for _, device := range []string{"plain", "mounts"} {
		spec := &oci.Spec{Mounts: []oci.Mount{{Destination: "/data/a"}, {Destination: "/b"}}}
		if _, err := cache.InjectDevices(spec, "vendor.example/device="+device); err != nil {
			panic(err)
		}
		fmt.Print(device, ":")
		for _, mount := range spec.Mounts {
			fmt.Print(" ", mount.Destination)
		}
		fmt.Println()
	}
}
GO
go mod init finding >/dev/null 2>&1
go get tags.cncf.io/container-device-interface/pkg/cdi@v1.1.2 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
plain: /data/a /b
mounts: /b /v /data/a /opt/vendor/lib
END
