"""Pods of CI systems from `tests/data/pods`, changed so that the node can run them."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.support.kube.cluster import Json
from tests.support.node.images import NodeImages
from tests.support.paths import DATA
from tests.support.reviews import load_pod

# The scripts of the Tekton pod's steps and of its sidecar, in the order of the pod's own.
TEKTON_SCRIPTS = (
    "#!/bin/sh\necho 'the first step'\nprintf abc >/tekton/results/commit\n",
    '#!/bin/sh\necho "the result is $(cat /tekton/results/commit)"\nexit 7\n',
    "#!/bin/sh\necho 'the sidecar'\nexec sleep 1000\n",
)
STEPS = ("step-checkout", "step-unnamed-1")
WOODPECKER_SCRIPT = 'set -e\npwd\necho "$CI_COMMIT_MESSAGE"\necho "$DEPLOY_TOKEN"\nid -G\nexit 9\n'
WOODPECKER_SECRET = "wp-01he8bebctabr3kgk0qj36d2me-0-step-secret"
TOKEN = "secret value"


def tekton_pod(images: NodeImages, namespace: str) -> Json:
    """Return a TaskRun's pod with two scripts, the second of which fails, and a sidecar.

    The sidecar has no readiness probe: podsettle leaves the steps of a pod with probes as they are.
    """
    pod = _runnable("tekton-taskrun-sidecar", namespace)
    prepare, place_scripts = pod["spec"]["initContainers"]
    prepare["image"], place_scripts["image"] = images.tekton, images.busybox
    bodies = iter(TEKTON_SCRIPTS)
    place_scripts["args"][1] = re.sub(
        r"(<< '_EOF_'\n).*?(\n_EOF_\n)",
        lambda found: found[1] + _base64(next(bodies)) + found[2],
        place_scripts["args"][1],
        flags=re.DOTALL,
    )
    for container in pod["spec"]["containers"]:
        container["image"] = images.busybox
        container.pop("readinessProbe", None)
    pod["spec"].pop("activeDeadlineSeconds")
    return pod


def woodpecker_pod(images: NodeImages, namespace: str) -> Json:
    """Return a step whose script fails. It needs the Secret WOODPECKER_SECRET."""
    pod = _runnable("woodpecker-step", namespace)
    (step,) = pod["spec"]["containers"]
    step["image"] = images.busybox
    for variable in step["env"]:
        if variable["name"] == "CI_SCRIPT":
            variable["value"] = _base64(WOODPECKER_SCRIPT)
    for volume in pod["spec"]["volumes"]:
        if volume["name"] == "workspace":
            del volume["persistentVolumeClaim"]
            volume["emptyDir"] = {}
    return pod


def woodpecker_secret() -> Json:
    """Return the Secret that the step reads."""
    return {"metadata": {"name": WOODPECKER_SECRET}, "stringData": {"DEPLOY_TOKEN": TOKEN}}


def _runnable(name: str, namespace: str) -> Json:
    """Return a pod without what belongs to the cluster that it is from."""
    pod = load_pod(DATA / "pods" / f"{name}.yaml")
    pod["metadata"]["namespace"] = namespace
    pod["metadata"].pop("ownerReferences", None)
    spec = pod["spec"]
    for field in ("serviceAccount", "serviceAccountName", "tolerations", "priority"):
        spec.pop(field, None)
    spec["terminationGracePeriodSeconds"] = 1
    # The API server adds the volume of the namespace's own ServiceAccount.
    _drop(spec["volumes"])
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        _drop(container["volumeMounts"])
    return pod


def _drop(named: list[dict[str, Any]]) -> None:
    named[:] = [each for each in named if not each["name"].startswith("kube-api-access-")]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
