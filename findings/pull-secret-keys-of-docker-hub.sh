#!/bin/sh
# Software: the kubelet 1.37.2 (pkg/credentialprovider), and the keychain of pull secrets of
#   go-containerregistry 0.22.1 (pkg/authn/kubernetes), by which Tekton and others look up images.
# Guess, written before the run: both take the same keys of a Secret of type
#   kubernetes.io/dockerconfigjson for docker.io/library/nginx.
# Behaviour: the kubelet pulls with a key `docker.io`, the keychain stays
#   anonymous. For `index.docker.io/library` it is the other way round. Both take
#   `https://index.docker.io/v1/`, and neither takes it without the last slash.
# Seen on 2026-11-29: the lines below.
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
	"encoding/json"
	"fmt"

	"finding/credentialprovider"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	core "k8s.io/api/core/v1"
)

func main() {
	image := name.MustParseReference("docker.io/library/nginx")
	for _, key := range []string{"docker.io", "docker.io/library", "index.docker.io/library",
		"index.docker.io", "https://index.docker.io/v1/", "https://index.docker.io/v1"} {
		text := `{"auths":{"` + key + `":{"auth":"dXNlcjpwYXNzd29yZA=="}}}`
		var config credentialprovider.DockerConfigJSON
		_ = json.Unmarshal([]byte(text), &config)
		keyring := &credentialprovider.BasicDockerKeyring{}
		keyring.Add(nil, config.Auths)
		_, kubelet := keyring.Lookup("docker.io/library/nginx")
		data := map[string][]byte{core.DockerConfigJsonKey: []byte(text)}
		secret := core.Secret{Type: core.SecretTypeDockerConfigJson, Data: data}
		keychain, _ := kubernetes.NewFromPullSecrets(context.Background(), []core.Secret{secret})
		found, _ := keychain.Resolve(image.Context())
		fmt.Println(key, kubelet, found != authn.Anonymous)
	}
}
GO
go mod init finding >/dev/null 2>&1
go mod download k8s.io/kubernetes@v1.37.2
mkdir credentialprovider
kubelet=$GOMODCACHE/k8s.io/kubernetes@v1.37.2/pkg/credentialprovider
cp "$kubelet/config.go" "$kubelet/provider.go" credentialprovider
# The gate adds from where a credential came, and would need the whole of k8s.io/kubernetes.
sed -e '/util\/feature"/d' -e '/kubernetes\/pkg\/features"/d' -e 's/utilfeature.*Images)/false/' \
  "$kubelet/keyring.go" >credentialprovider/keyring.go
keychain=github.com/google/go-containerregistry/pkg/authn/kubernetes
go get github.com/google/go-containerregistry@v0.22.1 $keychain@v0.0.0-20260224031529-85f2bf5f7303 \
  k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 k8s.io/client-go@v0.37.2 >/dev/null 2>&1
go run -gcflags="all=-N -l" . >seen
cat seen
diff seen - <<'END'
docker.io true false
docker.io/library true false
index.docker.io/library false true
index.docker.io true true
https://index.docker.io/v1/ true true
https://index.docker.io/v1 false false
END
