"""Tekton's controller and webhook on a real node, from Tekton's own manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node.registry_server import SECOND_ADDRESS
from tests.support.node.tekton_build import IMAGES, TektonBuild

NAMESPACE = "tekton-pipelines"
DEPLOYMENTS = ("tekton-pipelines-controller", "tekton-pipelines-webhook")

_BUILT = re.compile(r"ko://github\.com/tektoncd/pipeline/cmd/(\w+)")
_SHELL = re.compile(r"cgr\.dev/chainguard/busybox@sha256:[0-9a-f]{64}")
# They are for autoscaling, for events and for resolvers, which TaskRuns with a taskSpec do not use.
_LEFT_OUT = ("webhook-hpa.yaml", "events.yaml", "resolvers")


def manifests(build: TektonBuild, shell_image: str) -> Iterator[str]:
    """Yield Tekton's manifests with the images of this build, in the order of their names."""
    for path in sorted(build.manifests.rglob("*.yaml")):
        if path.relative_to(build.manifests).parts[0] not in _LEFT_OUT:
            text = _BUILT.sub(lambda match: _image(match[1]), path.read_text())
            yield _SHELL.sub(shell_image, text)


def _image(name: str) -> str:
    # Tekton refuses to start without the names of all its images.
    return f"{SECOND_ADDRESS}/tekton/{name if name in IMAGES else 'entrypoint'}:latest"


def apply_tekton(cluster: KubeCluster, build: TektonBuild, shell_image: str) -> None:
    """Apply Tekton's manifests. Its Deployments are not yet available on return."""
    for text in manifests(build, shell_image):
        done = cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
        assert done.returncode == 0, done.stderr


def task_run(namespace: str, image: str, runtime_class: str | None = None) -> Json:
    """Return a TaskRun of one step. Its pod has the init containers prepare and place-scripts."""
    step = {"name": "work", "image": image, "script": "#!/bin/sh\necho done\n"}
    spec: Json = {"taskSpec": {"steps": [step]}}
    if runtime_class is not None:
        spec["podTemplate"] = {"runtimeClassName": runtime_class}
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "TaskRun",
        "metadata": {"generateName": "run-", "namespace": namespace},
        "spec": spec,
    }


def outcome(run: Json) -> Json | None:
    """Return the condition of a TaskRun that has ended, or None."""
    for condition in run.get("status", {}).get("conditions", ()):
        if condition["type"] == "Succeeded" and condition["status"] != "Unknown":
            found: Json = condition
            return found
    return None
