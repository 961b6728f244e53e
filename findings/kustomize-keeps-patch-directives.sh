#!/bin/sh
# Software: kustomize 5.8.1, which kubectl 1.37 contains.
# Expectation: a strategic merge patch has one meaning, so what `kubectl patch` takes, with
#   $retainKeys and $setElementOrder, kustomize takes as well.
# Behaviour: kustomize knows `$patch` alone. It writes the other two into the object, where the API
#   server knows no such fields, and does not act on them: the volume has two sources, and the
#   containers stay in their order. A null deletes in both.
# Source: kyaml/yaml/merge2. Seen on 2026-11-30: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw" GOMODCACHE="$directory/modules" GOBIN="$directory"
go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 >/dev/null 2>&1
cat >pod.yaml <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  hostname: a
  containers: [{name: c}, {name: d}]
  volumes: [{name: v, emptyDir: {}}]
YAML
cat >kustomization.yaml <<'YAML'
resources: [pod.yaml]
patches:
- patch: |
    apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec:
      hostname: null
      $setElementOrder/containers: [{name: d}, {name: c}]
      volumes: [{name: v, $retainKeys: [name, configMap], configMap: {name: x}}]
YAML
./kustomize build . >seen
cat seen
diff seen - <<'END'
apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  $setElementOrder/containers:
  - name: d
  - name: c
  containers:
  - name: c
  - name: d
  volumes:
  - $retainKeys:
    - name
    - configMap
    configMap:
      name: x
    emptyDir: {}
    name: v
END
