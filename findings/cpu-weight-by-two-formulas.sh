#!/bin/sh
# Software: the kubelet 1.37.2 (k8s.io/kubernetes, pkg/kubelet/cm), and
#   github.com/opencontainers/cgroups 0.1.0, by which runc writes a container's cpu.weight.
# Guess, written before the run: one function converts CPU requests to cpu.weight for both, so a pod
#   of one container has the weight of this container, 17 for 100m and 100 for a whole CPU.
# Behaviour: the kubelet keeps the linear formula for the pod's cgroup, runc has a newer one for the
#   container's. Two pods share a CPU about in the ratio of their requests. Two containers of one
#   pod with the requests 100m and 1 share it as 17 to 100, not as 1 to 10.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
source=$(go mod download -json k8s.io/kubernetes@v1.37.2 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
kubelet=$source/pkg/kubelet/cm
cat >main.go <<GO
package main

import (
	"fmt"

	"github.com/opencontainers/cgroups"
)

const (
$(grep -E "^	(Min|Max)Shares |^	SharesPerCPU |^	MilliCPUToCPU " "$kubelet/helpers_linux.go")
)

$(sed -n '/^func MilliCPUToShares/,/^}/p' "$kubelet/helpers_linux.go")

$(sed -n '/^func getCPUWeight/,/^}/p' "$kubelet/cgroup_manager_linux.go")

func main() {
	for _, milli := range []int64{100, 500, 1000, 2000, 8000} {
		shares := MilliCPUToShares(milli)
		fmt.Printf("%dm: %d shares, pod %d, container %d\n", milli, shares,
			getCPUWeight(&shares), cgroups.ConvertCPUSharesToCgroupV2Value(shares))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/opencontainers/cgroups@v0.1.0 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
100m: 102 shares, pod 4, container 17
500m: 512 shares, pod 20, container 59
1000m: 1024 shares, pod 39, container 100
2000m: 2048 shares, pod 79, container 174
8000m: 8192 shares, pod 313, container 532
END
