#!/bin/sh
# Software: k8s.io/apiserver 0.37.2 (pkg/util/webhook: what calls admission webhooks).
# Guess, written before the run: an API server with --enable-aggregator-routing chooses a pod of a
#   webhook's Service when it connects, and keeps the connection. So calls one after the other reach
#   one pod, and if another pod hangs, no call notices.
# Behaviour: since 1.37 (WebhookRoundTripLoadBalancing, beta, on by default) each call chooses a
#   pod. So one that hangs takes its share of all calls until the Service leaves it out.
# Seen on 2026-11-30: "false 20 0" and "true 10 10": calls of each pod, by the gate
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod -trimpath" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	admission "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/util/cert"
)

type inTurn struct{ pods []*url.URL }

func (s *inTurn) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	s.pods[0], s.pods[1] = s.pods[1], s.pods[0]
	return s.pods[1], nil
}

func main() {
	certificate, key, _ := cert.GenerateSelfSignedCertKey("service.system.svc", nil, nil)
	pair, _ := tls.X509KeyPair(certificate, key)
	access, _ := webhook.NewDefaultAuthenticationInfoResolver("")
	for _, enabled := range []string{"false", "true"} {
		feature.DefaultMutableFeatureGate.Set("WebhookRoundTripLoadBalancing=" + enabled)
		service, calls := &inTurn{}, [2]int{}
		for i := range calls {
			pod := httptest.NewUnstartedServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { calls[i]++; fmt.Fprint(w, "{}") }))
			pod.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			pod.StartTLS()
			service.pods = append(service.pods, &url.URL{Host: pod.Listener.Addr().String()})
		}
		manager, _ := webhook.NewClientManager(
			[]schema.GroupVersion{admission.SchemeGroupVersion}, admission.AddToScheme)
		manager.SetAuthenticationInfoResolver(access)
		manager.SetServiceResolver(service)
		client, _ := manager.HookClient(webhook.ClientConfig{CABundle: certificate,
			Service: &webhook.ClientConfigService{Name: "service", Namespace: "system", Port: 443}})
		for range 20 {
			client.Post().Body([]byte("{}")).Do(context.Background())
		}
		fmt.Println(enabled, calls[0], calls[1])
	}
}
GO
{ go mod init finding && go get k8s.io/apiserver/pkg/util/webhook@v0.37.2; } >/dev/null 2>&1
go run . | tee seen
printf 'false 20 0\ntrue 10 10\n' | diff seen -
