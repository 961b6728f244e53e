#!/bin/sh
# Software: k8s.io/client-go 0.37.2, the library of kubectl 1.37 (transport/transport.go).
# Guess, written before the run: certificate-authority-data and tls-server-name of a kubeconfig are
#   about the API server. A proxy with https:// is verified by the system's CAs and its own name.
# Behaviour: both fields count for the proxy, too. A proxy that the system trusts is refused if the
#   cluster has a CA of its own, and so is a proxy whose certificate lacks the API server's name.
#   kubernetes/kubernetes#104779 is a change of this that was not merged.
# Seen on 2026-11-28: "no CA: proxy asked", "CA of the cluster: proxy refused", "CA of the proxy:
#   proxy asked", "CA of the proxy, and tls-server-name: proxy refused"
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const kubeconfig = `{current-context: x, contexts: [{name: x, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "https://192.0.2.1", proxy-url: "%s",
certificate-authority-data: "%s", tls-server-name: "%s"}}]}`

func main() {
	asked := false
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method == http.MethodConnect
	}))
	proxyCA := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	os.WriteFile("system.pem", proxyCA, 0o600)
	os.Setenv("SSL_CERT_FILE", "system.pem")
	public, private, _ := ed25519.GenerateKey(nil)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	der, _ := x509.CreateCertificate(nil, template, template, public, private)
	try := func(name string, ca []byte, serverName string, expected bool) {
		data := base64.StdEncoding.EncodeToString(ca)
		text := fmt.Sprintf(kubeconfig, proxy.URL, data, serverName)
		config, _ := clientcmd.RESTConfigFromKubeConfig([]byte(text))
		client, _ := rest.HTTPClientFor(config)
		asked = false
		client.Get(config.Host)
		fmt.Printf("%s: proxy %s\n", name, map[bool]string{true: "asked", false: "refused"}[asked])
		if asked != expected {
			os.Exit(1)
		}
	}
	try("no CA", nil, "", true)
	try("CA of the cluster", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "", false)
	try("CA of the proxy", proxyCA, "", true)
	try("CA of the proxy, and tls-server-name", proxyCA, "api.internal", false)
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/client-go@v0.37.2 >/dev/null 2>&1
go run . 2>/dev/null
