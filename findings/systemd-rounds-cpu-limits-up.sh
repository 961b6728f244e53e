#!/bin/sh
# Software: github.com/opencontainers/cgroups 0.1.0 (systemd), by which runc 1.5.3 sets the CPU
#   limit of a container if containerd or CRI-O uses the systemd driver.
# Guess, written before the run: a limit of 125m is 12500 of 100000 in cpu.max, with the systemd
#   driver as with cgroupfs, since the kernel counts in microseconds.
# Behaviour: with the systemd driver, the limit is rounded up to a whole percent of a CPU, and runc
#   writes the rounded number to cpu.max as well. 125m is 130m there, and 11m is 20m, nearly twice as
#   much.
# Source: addCPUQuota() in systemd/common.go changes the quota that it is given. Its comment says
#   that systemd converts to whole percents. Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
mkdir empty
cd empty
go mod init empty >/dev/null 2>&1
source=$(go mod download -json github.com/opencontainers/cgroups@v0.1.0 | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
cp -r "$source" "$directory/cgroups"
cd "$directory/cgroups"
# The function is not exported, so the program has to be a test of its package.
rm -f systemd/*_test.go
cat >systemd/finding_test.go <<'GO'
package systemd

import (
	"fmt"
	"testing"

	dbus "github.com/coreos/go-systemd/v22/dbus"
)

func TestFinding(t *testing.T) {
	for _, milli := range []int64{11, 12, 125, 130, 1001, 1500} {
		quota := milli * 100
		var properties []dbus.Property
		addCPUQuota(newDbusConnManager(false), &properties, &quota, 100000)
		for _, property := range properties {
			if property.Name == "CPUQuotaPerSecUSec" {
				fmt.Printf("seen %dm: systemd %v, cpu.max %d 100000\n", milli, property.Value.Value(), quota)
			}
		}
	}
}
GO
go test -count=1 -run Finding -v ./systemd 2>/dev/null | sed -n 's/^seen //p' >"$directory/seen"
cd "$directory"
cat seen
diff seen - <<'END'
11m: systemd 20000, cpu.max 2000 100000
12m: systemd 20000, cpu.max 2000 100000
125m: systemd 130000, cpu.max 13000 100000
130m: systemd 130000, cpu.max 13000 100000
1001m: systemd 1010000, cpu.max 101000 100000
1500m: systemd 1500000, cpu.max 150000 100000
END
