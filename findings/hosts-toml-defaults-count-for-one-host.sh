#!/bin/sh
# Software: containerd 2.4.2 (github.com/containerd/containerd/v2, core/remotes/docker/config),
#   which reads certs.d/NAME/hosts.toml.
# Guess, written before the run: `ca`, `skip_verify` and `[header]` in front of the [host] tables
#   hold for each host of the file that does not set its own.
# Behaviour: they hold for the server alone, the last host that is tried. A mirror without a `ca` of
#   its own is verified by the CAs of the system. One without `capabilities` has all of them.
# Source: parseHostsFile() in hosts.go. Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later, openssl and the Go module proxy. Ends with 1 if the behaviour is another
#   one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
mkdir -p certs.d/docker.io
openssl req -x509 -newkey rsa:2048 -noenc -keyout key -out certs.d/docker.io/ca.pem -subj /CN=ca 2>/dev/null
cat >certs.d/docker.io/hosts.toml <<'END'
ca = "ca.pem"
skip_verify = true
[header]
  x-team = "a"
[host."https://first.example"]
[host."https://second.example"]
  ca = "ca.pem"
  capabilities = ["pull"]
END
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

func main() {
	options := config.HostOptions{HostDir: config.HostDirFromRoot("certs.d")}
	hosts, err := config.ConfigureHosts(context.Background(), options)("docker.io")
	if err != nil {
		panic(err)
	}
	for _, host := range hosts {
		tls := host.Client.Transport.(*http.Transport).TLSClientConfig
		hasRoots, isSkipped := tls != nil && tls.RootCAs != nil, tls != nil && tls.InsecureSkipVerify
		fmt.Printf("%s: ca %v, skip_verify %v, headers %d, resolve %v\n", host.Host, hasRoots, isSkipped,
			len(host.Header), host.Capabilities.Has(docker.HostCapabilityResolve))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/containerd/containerd/v2/core/remotes/docker/config@v2.4.2 >/dev/null 2>&1
go run -gcflags=all='-N -l' . >seen 2>/dev/null
cat seen
diff seen - <<'END'
first.example: ca false, skip_verify false, headers 0, resolve true
second.example: ca true, skip_verify false, headers 0, resolve false
registry-1.docker.io: ca true, skip_verify true, headers 1, resolve true
END
