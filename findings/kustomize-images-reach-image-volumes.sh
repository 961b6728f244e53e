#!/bin/sh
# Software: kustomize 5.8.1, which kubectl 1.37 contains.
# Guess, written before the run: `images` changes the containers of a pod, and not the reference of
#   an image volume.
# Behaviour: it changes the reference too. It does not change ephemeral containers, nor the single
#   `container` and `script` of an Argo Workflow, while its list `containers` is changed.
# Source: the image transformer of sigs.k8s.io/kustomize/api.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw" GOMODCACHE="$directory/modules" GOBIN="$directory"
cat >objects.yaml <<'END'
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  initContainers: [{name: a, image: busybox}]
  containers: [{name: b, image: busybox}]
  ephemeralContainers: [{name: c, image: busybox}]
  volumes: [{name: d, image: {reference: busybox}}]
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: workflow}
spec:
  templates:
  - container: {image: busybox}
    containerSet: {containers: [{name: e, image: busybox}]}
    script: {image: busybox}
END
cat >kustomization.yaml <<'END'
resources: [objects.yaml]
images: [{name: busybox, newTag: "2"}]
END
go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 >/dev/null 2>&1
./kustomize build . | grep -B1 -E '(image|reference): busybox' | grep -v -e '^--' >seen
cat seen
diff seen - <<'END'
  - container:
      image: busybox
      containers:
      - image: busybox:2
    script:
      image: busybox
  containers:
  - image: busybox:2
  ephemeralContainers:
  - image: busybox
  initContainers:
  - image: busybox:2
  - image:
      reference: busybox:2
END
