#!/bin/sh
# Software: containerd 2.4.2 (github.com/containerd/containerd/v2, plugins/cri/images), which
#   migrates a configuration of version 2 when it starts, and by `containerd config migrate`.
# One would expect: the migration moves `snapshotter` of the CRI's containerd table to the table of
#   images, with discard_unpacked_layers and disable_snapshot_annotations.
# Behaviour: it does so only if the file also has a table `runtimes`. A short file, with nothing but
#   the settings that differ from the defaults, loses the three without an error.
#   An empty table `runtimes` is enough to keep them.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
source=$(go mod download -json github.com/containerd/containerd/v2@v2.4.2 |
	sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
# The package is larger than its migration, which is copied as it is.
cat >main.go <<GO
package main

import (
	"fmt"

	"github.com/containerd/platforms"
)

$(sed -n '/^func migrateConfig/,/^}/p' "$source/plugins/cri/images/plugin.go")

func main() {
	for _, runtimes := range []bool{true, false} {
		table := map[string]any{"snapshotter": "native", "discard_unpacked_layers": true}
		if runtimes {
			table["runtimes"] = map[string]any{}
		}
		images := map[string]any{}
		migrateConfig(images, map[string]any{"containerd": table, "max_concurrent_downloads": 1})
		fmt.Printf("runtimes %t: %v\n", runtimes, images)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/containerd/platforms@v1.0.0-rc.5 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
runtimes true: map[discard_unpacked_layers:true max_concurrent_downloads:1 snapshotter:native]
runtimes false: map[max_concurrent_downloads:1]
END
