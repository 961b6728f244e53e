#!/bin/sh
# Software: go.podman.io/image/v5 5.42.1 (pkg/sysregistriesv2), by which CRI-O and Podman read
#   registries.conf and registries.conf.d.
# Guess, written before the run: a [[registry]] in a drop-in adds to the one of the main file with
#   the same prefix, so a drop-in that sets `insecure` leaves the mirrors of the main file.
# Behaviour: it replaces the whole entry, so the mirrors are gone. The same holds for the list
#   unqualified-search-registries. An entry of another prefix in the drop-in is added.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules" CGO_ENABLED=0
cat >registries.conf <<'TOML'
unqualified-search-registries = ["a.example"]
[[registry]]
location = "b.example/team"
[[registry.mirror]]
location = "mirror.example/team"
TOML
mkdir drop-ins
cat >drop-ins/10.conf <<'TOML'
unqualified-search-registries = ["c.example"]
[[registry]]
location = "b.example/team"
insecure = true
[[registry]]
location = "d.example"
TOML
cat >main.go <<'GO'
package main

import (
	"fmt"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

func main() {
	for _, dropIns := range []string{"none", "drop-ins"} {
		context := &types.SystemContext{
			SystemRegistriesConfPath:    "registries.conf",
			SystemRegistriesConfDirPath: dropIns,
		}
		registries, err := sysregistriesv2.GetRegistries(context)
		if err != nil {
			panic(err)
		}
		for _, each := range registries {
			fmt.Println(dropIns+":", each.Prefix, each.Insecure, "mirrors", len(each.Mirrors))
		}
		search, _ := sysregistriesv2.UnqualifiedSearchRegistries(context)
		fmt.Println(dropIns+":", search)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get go.podman.io/image/v5/pkg/sysregistriesv2@v5.42.1 >/dev/null 2>&1
go run -tags containers_image_openpgp . >seen
cat seen
diff seen - <<'END'
none: b.example/team false mirrors 1
none: [a.example]
drop-ins: b.example/team true mirrors 0
drop-ins: d.example false mirrors 0
drop-ins: [c.example]
END
