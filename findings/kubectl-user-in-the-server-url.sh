#!/bin/sh
# Software: k8s.io/client-go 0.37.2, the library of kubectl 1.37 (rest/request.go), and Go's net/http.
# Guess, written before the run: the token of a user in a kubeconfig takes precedence over
#   a user in the URL of the server, because the token is what the kubeconfig says about the user.
# Behaviour: net/http sets the Authorization header from the URL first. client-go then finds a
#   header, and sends neither the token nor that of a credential plugin. `https://@host`, where the
#   user is empty, has the same effect: the token is not sent.
# Seen on 2026-11-28: "server without a user: Bearer t", "user:pw@: Basic dXNlcjpwdw==" and
#   "@: Basic Og=="
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

const kubeconfig = `{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: "%s", insecure-skip-tls-verify: true}}]}`

func main() {
	authorization := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
	}))
	try := func(user, expected string) {
		url := strings.Replace(server.URL, "https://", "https://"+user, 1)
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(fmt.Sprintf(kubeconfig, url)))
		if err != nil {
			panic(err)
		}
		client := discovery.NewDiscoveryClientForConfigOrDie(config)
		client.RESTClient().Get().AbsPath("/version").Do(context.Background())
		fmt.Printf("%q in the URL: %s\n", user, authorization)
		if authorization != expected {
			os.Exit(1)
		}
	}
	try("", "Bearer t")
	try("user:pw@", "Basic dXNlcjpwdw==")
	try("@", "Basic Og==")
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.37.2 >/dev/null 2>&1
go run . 2>/dev/null
