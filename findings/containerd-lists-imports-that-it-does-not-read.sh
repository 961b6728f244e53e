#!/bin/sh
# Software: containerd 2.4.2 (github.com/containerd/containerd/v2, cmd/containerd/server/config).
# Guess, written before the run: `containerd config dump` says imports =
#   ['/etc/containerd/conf.d/*.toml'], so containerd reads the files there, also without a
#   config.toml or beside one that does not name them.
# Behaviour: that pattern is a default value, and is only printed. containerd follows the patterns
#   of the files that it reads. Without a file, or with one without `imports`, a drop-in in conf.d
#   has no effect, though the dump names its directory. The same line in config.toml makes it count.
#   The program's own dumps (2.3.7 and 2.4.2) with /etc/containerd/conf.d/99.toml and no config.toml
#   say the same.
# Seen on 2026-11-30: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
source=$(go mod download -json github.com/containerd/containerd/v2@v2.4.2 |
	sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
# The default configuration, into which containerd loads the main file.
grep -o 'Imports: .*DefaultConfigIncludePattern}' "$source/cmd/containerd/command/config.go" >seen
mkdir conf.d
cat >conf.d/99.toml <<'TOML'
version = 3
[plugins."io.containerd.snapshotter.v1.overlayfs"]
mount_options = ["volatile"]
TOML
printf 'version = 3\nroot = "/data"\n' >without.toml
printf 'version = 3\nroot = "/data"\nimports = ["conf.d/*.toml"]\n' >with.toml
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/cmd/containerd/server/config"
)

func main() {
	here, _ := os.Getwd()
	for _, file := range []string{"none.toml", "without.toml", "with.toml"} {
		loaded := config.Config{Version: 3, Imports: []string{filepath.Join(here, "conf.d/*.toml")}}
		err := config.LoadConfig(context.Background(), filepath.Join(here, file), &loaded)
		if err != nil && !os.IsNotExist(err) {
			panic(err)
		}
		fmt.Println(file, "imports listed:", len(loaded.Imports), "plugins:", loaded.Plugins)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/containerd/containerd/v2/cmd/containerd/server/config@v2.4.2 >/dev/null 2>&1
go run . >>seen
cat seen
diff seen - <<'END'
Imports:          []string{defaults.DefaultConfigIncludePattern}
none.toml imports listed: 1 plugins: map[]
without.toml imports listed: 1 plugins: map[]
with.toml imports listed: 2 plugins: map[io.containerd.snapshotter.v1.overlayfs:map[mount_options:[volatile]]]
END
