"""Pods with a volume, and the requests with which a kubelet starts them through the CRI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from bench.errors import BenchError
from tests.support.factories import policy_document
from tests.support.process import podsettle
from tests.support.vm.image import BUSYBOX_IMAGE, VOLUMES

Json = dict[str, Any]

LEVEL, OTHER_LEVEL = "s0:c123,c456", "s0:c7,c8"
MOUNT_PATH = "/data"
_NAMESPACE_LABELS = {"storage": "large"}
# The values of `NamespaceMode` in the CRI.
_POD, _CONTAINER = 0, 1
_uids = count(1)


def volume_pod(volume: str = "", *, level: str = LEVEL) -> Json:
    """Return a pod as its author writes it, with a claim if `volume` names one."""
    container: Json = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"]}
    spec: Json = {"containers": [container]}
    if level:
        spec["securityContext"] = {"seLinuxOptions": {"level": level}}
    if volume:
        container["volumeMounts"] = [{"name": "data", "mountPath": MOUNT_PATH}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
    metadata = {"name": "pod", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def settled(pod: Json, remedies: Json, runtime_class: Json, directory: Path) -> Json:
    """Return the pod as podsettle admits it under a policy with these remedies.

    The directory is where the policy and the cluster are written.
    """
    policy = policy_document(
        "large-volumes",
        remedies=remedies,
        namespaceSelector={"matchLabels": _NAMESPACE_LABELS},
    )
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": _NAMESPACE_LABELS},
    }
    cluster = directory / "cluster.yaml"
    cluster.write_text(yaml.safe_dump_all([policy, namespace, runtime_class]))
    done = podsettle(
        *("preview", "--manifests", cluster, "--output", "yaml", "-"), stdin=json.dumps(pod)
    )
    if done.returncode != 0:
        raise BenchError(f"podsettle preview: {done.stderr.strip()}")
    admitted: Json = yaml.safe_load(done.stdout)
    return admitted


def start_request(
    pod: Json, handlers: Mapping[str, str], container_annotations: Mapping[str, str] | None = None
) -> Json:
    """Return the input of `cri SOCKET start` that a kubelet makes of an admitted pod.

    `handlers` has the handler of each RuntimeClass. The kubelet gives the annotations of a pod to
    its sandbox only (`newPodAnnotations` and `newContainerAnnotations` in
    `pkg/kubelet/kuberuntime/labels.go`). It asks to relabel each volume that is not mounted with a
    label (`makeMounts` in `pkg/kubelet/kubelet_pods.go`).
    """
    metadata, spec = pod["metadata"], pod["spec"]
    (container,) = spec["containers"]
    uid = f"uid-{next(_uids)}"
    names = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": uid}
    options = spec.get("securityContext", {}).get("seLinuxOptions", {})
    security: Json = {"namespace_options": {"network": _POD, "pid": _CONTAINER, "ipc": _POD}}
    if options:
        security["selinux_options"] = options
    paths = {
        volume["name"]: str(VOLUMES / volume["persistentVolumeClaim"]["claimName"])
        for volume in spec.get("volumes", ())
    }
    return {
        "handler": handlers[spec["runtimeClassName"]] if "runtimeClassName" in spec else "",
        "sandbox": {
            "metadata": names,
            "log_directory": f"/var/log/pods/{uid}",
            "labels": {f"io.kubernetes.pod.{key}": value for key, value in names.items()},
            "annotations": metadata.get("annotations", {}),
            "linux": {"security_context": security},
        },
        "container": {
            "metadata": {"name": container["name"]},
            "image": {"image": container["image"]},
            "command": container["command"],
            "mounts": [
                {
                    "container_path": mount["mountPath"],
                    "host_path": paths[mount["name"]],
                    "selinux_relabel": True,
                }
                for mount in container.get("volumeMounts", ())
            ],
            "log_path": f"{container['name']}.log",
            "annotations": container_annotations or {},
            "linux": {"security_context": security},
        },
    }
