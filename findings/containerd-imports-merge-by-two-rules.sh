#!/bin/sh
# Software: containerd 2.4.0 (github.com/containerd/containerd/v2, cmd/containerd/server/config).
# Guess, written before the run: a list in a file that `imports` names replaces the list of the main
#   file, at the top level as in a plugin's table.
# Behaviour: that holds in a plugin's table only. At the top level a list is appended to that of the
#   main file, so no import can enable what disabled_plugins of the main file disables. Nor has
#   a zero an effect there, as oom_score = 0. In a plugin's table, zero and false count.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.toml <<'TOML'
version = 3
imports = ["import.toml"]
oom_score = -999
disabled_plugins = ["io.containerd.internal.v1.tracing"]
[plugins."io.containerd.cri.v1.runtime"]
max_container_log_line_size = 16384
enable_unprivileged_ports = true
cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]
TOML
cat >import.toml <<'TOML'
version = 3
oom_score = 0
disabled_plugins = []
[plugins."io.containerd.cri.v1.runtime"]
max_container_log_line_size = 0
enable_unprivileged_ports = false
cdi_spec_dirs = []
TOML
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/cmd/containerd/server/config"
)

func main() {
	merged := config.Config{Version: 3}
	if err := config.LoadConfig(context.Background(), "main.toml", &merged); err != nil {
		panic(err)
	}
	fmt.Println("top level:", merged.OOMScore, merged.DisabledPlugins)
	fmt.Println("plugin:", merged.Plugins["io.containerd.cri.v1.runtime"])
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/containerd/containerd/v2/cmd/containerd/server/config@v2.4.0 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
top level: -999 [io.containerd.internal.v1.tracing]
plugin: map[cdi_spec_dirs:[] enable_unprivileged_ports:false max_container_log_line_size:0]
END
