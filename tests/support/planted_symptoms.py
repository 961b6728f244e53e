"""Pods with the symptoms that a scan looks for, and look-alikes that differ in one field.

Each pod is described without a namespace, relative to a time. Unit tests convert it directly, and
an e2e test creates it on an API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from webhook.core.constants import HELPER_MOUNT, HELPER_PATH
from webhook.inspect.findings import Certainty

Json = dict[str, Any]

CRIO, FIXED_CRIO, CONTAINERD = "crio-1", "fixed-crio-1", "containerd-1"
NEW, WAITING, CLIENT_ONLY = "new-1", "new-2", "new-3"
"""Nodes that have just joined: with an approved request, with a pending one, and with one for a
client certificate."""
HANDLERS, LISTS_HANDLER = "handlers-1", "handlers-2"
"""Nodes that list their runtime handlers."""
NODE_RUNTIMES = {
    CRIO: "cri-o://1.33.12",
    FIXED_CRIO: "cri-o://1.33.13",
    CONTAINERD: "containerd://1.7.29",
    NEW: "cri-o://1.33.13",
    WAITING: "cri-o://1.33.13",
    CLIENT_ONLY: "cri-o://1.33.13",
    HANDLERS: "cri-o://1.33.13",
    LISTS_HANDLER: "cri-o://1.33.13",
}
NODE_HANDLERS = {HANDLERS: ["", "runc"], LISTS_HANDLER: ["", "runc", "overlay"]}
KUBELET = "v1.33.5"
RUNTIME_CLASS: Json = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "overlay-volatile"},
    "handler": "overlay",
}
COVERED_LABEL = {"podsettle.test/covered": "yes"}
POLICY: Json = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": {"name": "covered"},
    "spec": {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": COVERED_LABEL},
        "remedies": {"postInitSleep": {}},
    },
}
APPROVAL_DELAY = timedelta(seconds=15)
"""The time between the creation of a node and the approval of its request, as in the report."""
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
REQUESTS = {NEW: SERVING_SIGNER, WAITING: SERVING_SIGNER, CLIENT_ONLY: CLIENT_SIGNER}
"""By node: the signer of its request. That of WAITING is not approved."""
_CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
_EMPTY = {"name": "data", "emptyDir": {}}


class PlantedEvent(NamedTuple):
    """An event of a pod. Its times are seconds after that of the pod."""

    reason: str
    message: str
    path: str = ""
    """The field path of the involved object."""
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Plant:
    """One pod, and what a scan is to find at it."""

    name: str
    symptom: str
    certainty: Certainty | None
    """None: a look-alike, at which the symptom must not be found."""
    node: str
    spec: Json = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    events: tuple[tuple[str, str, str] | PlantedEvent, ...] = ()
    """Reason, message, and the field path of the involved object."""

    def pod(self, namespace: str) -> Json:
        """Return the pod without its status. Its container mounts all of its volumes."""
        names = [each["name"] for each in self.spec.get("volumes", ())]
        main: Json = {"name": "main", "image": "registry.example/app:1", "command": ["app"]}
        if names:
            main["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in names]
        spec = {
            "nodeName": self.node,
            "restartPolicy": "Always",
            "containers": [main],
            **deepcopy(self.spec),
        }
        metadata = {**deepcopy(self.metadata), "name": self.name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def with_state(self, now: datetime) -> Json:
        """Return the status. Numbers in place of times are seconds after `now`."""
        status: Json = _with_times({"phase": "Running", **deepcopy(self.status)}, now)
        return status

    def event(self, index: int, namespace: str, uid: str, now: datetime) -> Json:
        """Return one of the events."""
        reason, message, path, first, last = PlantedEvent(*self.events[index])
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self.name}.{index}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": self.name,
                "uid": uid,
                "fieldPath": path,
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": "kubelet"},
            "firstTimestamp": stamp(now + timedelta(seconds=first)),
            "lastTimestamp": stamp(now + timedelta(seconds=last)),
        }


def stamp(time: datetime) -> str:
    """Return a time as the API server writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_times(value: Any, now: datetime) -> Any:
    if isinstance(value, dict):
        return {
            key: stamp(now + timedelta(seconds=inner))
            if key in ("startedAt", "finishedAt", "lastTransitionTime")
            else _with_times(inner, now)
            for key, inner in value.items()
        }
    return [_with_times(each, now) for each in value] if isinstance(value, list) else value


def ended(name: str, code: int, started: int, finished: int, **more: Any) -> Json:
    """Return the status of a container that has ended."""
    terminated = {"exitCode": code, "startedAt": started, "finishedAt": finished, **more}
    return container_status(name, {"terminated": terminated})


def running(name: str, started: int, restarts: int = 0) -> Json:
    """Return the status of a container that runs."""
    return container_status(name, {"running": {"startedAt": started}}, restarts)


def container_status(name: str, state: Json, restarts: int = 0) -> Json:
    """Return the status of a container."""
    return {
        "name": name,
        "state": state,
        "lastState": {},
        "restartCount": restarts,
        "ready": False,
        "image": "registry.example/app:1",
        "imageID": "",
    }


def init(name: str, image: str = "registry.example/init:1") -> Json:
    """Return an init container."""
    return {"name": name, "image": image, "command": ["init"]}


def owned_by(kind: str, name: str, **labels: str) -> Json:
    """Return metadata with a controller."""
    api_version = {"ReplicaSet": "apps/v1", "Job": "batch/v1"}.get(kind, "tekton.dev/v1")
    reference = {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": "00000000-0000-0000-0000-000000000001",
        "controller": True,
    }
    return {"ownerReferences": [reference], "labels": labels}


_INIT_255 = Plant(
    "init-255",
    "cri-o-9840",
    Certainty.LIKELY,
    CRIO,
    {"restartPolicy": "Never", "initContainers": [init("prepare")]},
    {"phase": "Failed", "initContainerStatuses": [ended("prepare", 255, 0, 1)]},
    owned_by("TaskRun", "build-1"),
)
_STEP_255 = Plant(
    "step-255",
    "cri-o-9840",
    Certainty.LIKELY,
    CRIO,
    {"restartPolicy": "Never"},
    {"phase": "Failed", "containerStatuses": [ended("main", 255, 0, 0)]},
    owned_by("Job", "nightly"),
)
_UMOUNT = Plant(
    "umount",
    "containerd-slow-umount",
    Certainty.LIKELY,
    CONTAINERD,
    {"initContainers": [init("init-proxy")]},
    {
        "initContainerStatuses": [ended("init-proxy", 0, 1, 2)],
        "containerStatuses": [running("main", 923)],
    },
    owned_by("ReplicaSet", "web-5d59f7c9bd", **{"pod-template-hash": "5d59f7c9bd"}),
    (
        PlantedEvent(
            "Pulled",
            'Successfully pulled image "registry.example/app:1" in 850ms (2.5s including waiting).'
            " Image size: 30 bytes.",
            "spec.containers{main}",
            922,
            922,
        ),
    ),
)
_UMOUNT_UNKNOWN = replace(_UMOUNT, name="umount-unknown", certainty=Certainty.POSSIBLE, events=())
_STAGE = (
    "Error: kubelet may be retrying requests that are timing out in CRI-O due to system load. "
    "Currently at stage {stage}: the requested container k8s_app is now ready and will be provided "
    "to the kubelet on next retry: error reserving ctr name k8s_app for id 59ef: {end}"
)
_RELABEL = Plant(
    "relabel",
    "crio-selinux-relabel",
    Certainty.CERTAIN,
    CRIO,
    {"volumes": [_CLAIM]},
    {"phase": "Pending"},
    owned_by("Job", "sample-cron-28285183"),
    (
        (
            "Failed",
            _STAGE.format(stage="container volume configuration", end="name is reserved"),
            "spec.containers{main}",
        ),
    ),
)
_CREATE_ERROR = Plant(
    "create-error",
    "crio-selinux-relabel",
    Certainty.POSSIBLE,
    CRIO,
    {"volumes": [_CLAIM]},
    {
        "phase": "Pending",
        "containerStatuses": [
            container_status(
                "main",
                {
                    "waiting": {
                        "reason": "CreateContainerError",
                        "message": "context deadline exceeded",
                    }
                },
            )
        ],
    },
)
_EARLY = Plant(
    "early",
    "kubelet-serving-certificate",
    Certainty.CERTAIN,
    NEW,
    {},
    {"containerStatuses": [running("main", 5)]},
)
_HANDLER = Plant(
    "handler",
    "missing-handler",
    Certainty.CERTAIN,
    CRIO,
    {"runtimeClassName": "overlay-volatile"},
    {"phase": "Pending"},
    {},
    (
        (
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox "
            'runtime: no runtime for "overlay" is configured',
            "",
        ),
    ),
)
_UNLISTED_HANDLER = replace(
    _HANDLER, name="unlisted-handler", certainty=Certainty.LIKELY, node=HANDLERS, events=()
)
_FS_GROUP = Plant(
    "fs-group",
    "fsgroup-ownership-walk",
    Certainty.CERTAIN,
    FIXED_CRIO,
    {"securityContext": {"fsGroup": 1000}, "volumes": [_CLAIM]},
    {"phase": "Pending"},
    {},
    (
        (
            "VolumePermissionChangeInProgress",
            "Setting volume ownership for uid/volumes/data is taking longer than expected, "
            "consider using OnRootMismatch",
            "",
        ),
    ),
)
_SLOW_MOUNT = replace(
    _FS_GROUP,
    name="slow-mount",
    certainty=Certainty.POSSIBLE,
    events=(),
    status={
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": 0},
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": 464},
        ]
    },
)
_UNSETTLED = Plant(
    "unsettled",
    "not-settled",
    Certainty.CERTAIN,
    CRIO,
    {"initContainers": [{**init("setup"), "command": ["sh", "-c", "true"]}]},
    {},
    owned_by("ReplicaSet", "api-7c9f8", **{"pod-template-hash": "7c9f8"}, **COVERED_LABEL),
)


def _alike(plant: Plant, suffix: str, **changes: Any) -> Plant:
    """Return a look-alike of a plant."""
    return replace(plant, name=f"{plant.name}-{suffix}", certainty=None, **changes)


def _changed(value: Json, path: tuple[str | int, ...], new: Any) -> Json:
    """Return a copy of a value in which one field differs."""
    copy: Any = deepcopy(value)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return dict(copy)


def _look_alikes() -> Iterator[Plant]:
    terminated = (0, "state", "terminated")
    inits, regular = ("initContainerStatuses", *terminated), ("containerStatuses", *terminated)
    status = _INIT_255.status
    yield _alike(_INIT_255, "code", status=_changed(status, (*inits, "exitCode"), 1))
    yield _alike(_INIT_255, "fixed", node=FIXED_CRIO)
    yield _alike(_INIT_255, "oom", status=_changed(status, (*inits, "reason"), "OOMKilled"))
    yield _alike(_INIT_255, "long", status=_changed(status, (*inits, "finishedAt"), 30))
    for reason in ("Evicted", "DeadlineExceeded", "Preempting", "Terminated"):
        killed = _changed(status, ("reason",), reason)
        yield _alike(_INIT_255, reason.lower(), status=killed)
    disrupted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": 0}
    yield _alike(_INIT_255, "disrupted", status={**status, "conditions": [disrupted]})
    stopped = PlantedEvent("Killing", "Stopping container main", "spec.containers{main}")
    yield _alike(_STEP_255, "killed", events=(stopped,))
    status = _STEP_255.status
    yield _alike(_STEP_255, "always", spec=_changed(_STEP_255.spec, ("restartPolicy",), "Always"))
    yield _alike(_STEP_255, "long", status=_changed(status, (*regular, "startedAt"), -60))
    started = ("containerStatuses", 0, "state", "running", "startedAt")
    yield _alike(_UMOUNT, "soon", status=_changed(_UMOUNT.status, started, 7))
    yield _alike(_UMOUNT, "volatile", node=CRIO)
    pulled = PlantedEvent(*_UMOUNT.events[0])
    slow = pulled.message.replace("850ms (2.5s", "15m1.5s (15m2s")
    yield _alike(_UMOUNT, "pull", events=(pulled._replace(message=slow),))
    back_off = 'Back-off pulling image "registry.example/app:1": ErrImagePull: not found'
    failing = PlantedEvent("BackOff", back_off, pulled.path, 5, 900)
    yield _alike(_UMOUNT, "back-off", events=(pulled, failing))
    missing = PlantedEvent("Failed", 'Error: configmap "app" not found', pulled.path, 3, 900)
    present = 'Container image "registry.example/app:1" already present on machine'
    there = pulled._replace(message=present, first=3)
    yield _alike(_UMOUNT, "config-map", events=(there, missing))
    yield _alike(_UMOUNT, "present-early", events=(there,))
    other = {"name": "proxy", "image": "registry.example/proxy:1"}
    of_other = PlantedEvent("Failed", "Failed to pull image", "spec.containers{proxy}", 300, 300)
    both = {**_UMOUNT.spec, "containers": [other, *_UMOUNT.pod("ci")["spec"]["containers"]]}
    yield _alike(_UMOUNT, "other-pull", spec=both, events=(pulled, of_other))
    stage = _STAGE.format(stage="container storage creation", end="still in progress")
    yield _alike(_RELABEL, "storage", events=(("Failed", stage, "spec.containers{main}"),))
    stage = _STAGE.format(stage="container runtime creation", end="name is reserved")
    elsewhere = (("Failed", stage, "spec.containers{main}"),)
    yield _alike(_RELABEL, "runtime", events=elsewhere)
    yield _alike(_RELABEL, "no-volume", spec={"volumes": []})
    yield _alike(_CREATE_ERROR, "runtime", events=elsewhere)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    for plant in (_RELABEL, _CREATE_ERROR, _FS_GROUP):
        yield _alike(plant, "read-only", spec={**plant.spec, "volumes": [claim]})
        (main,) = plant.pod("ci")["spec"]["containers"]
        main["volumeDevices"] = [{"name": main.pop("volumeMounts")[0]["name"], "devicePath": "/d"}]
        yield _alike(plant, "block", spec={**plant.spec, "containers": [main]})
    for plant in (_RELABEL, _CREATE_ERROR):
        unconfined = {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}
        yield _alike(plant, "spc", spec={**plant.spec, **unconfined})
        containers = [{**each, **unconfined} for each in plant.pod("ci")["spec"]["containers"]]
        yield _alike(plant, "own-spc", spec={**plant.spec, "containers": containers})
    waiting = ("containerStatuses", 0, "state", "waiting", "reason")
    config_error = _changed(_CREATE_ERROR.status, waiting, "CreateContainerConfigError")
    yield _alike(_CREATE_ERROR, "config", status=config_error)
    yield _alike(_EARLY, "later", status={"containerStatuses": [running("main", 20)]})
    yield _alike(_EARLY, "client", node=CLIENT_ONLY)
    fargate = {"labels": {"eks.amazonaws.com/fargate-profile": "fp-default"}}
    yield _alike(_EARLY, "fargate", metadata=fargate)
    network = 'Failed to create pod sandbox: failed to setup network for sandbox: plugin "overlay"'
    yield _alike(_HANDLER, "network", events=(("FailedCreatePodSandBox", network, ""),))
    yield _alike(_UNLISTED_HANDLER, "listed", node=LISTS_HANDLER)
    policy = ("securityContext", "fsGroupChangePolicy")
    yield _alike(_FS_GROUP, "root", spec=_changed(_FS_GROUP.spec, policy, "OnRootMismatch"))
    unmounted = (
        "Unable to attach or mount volumes: unmounted volumes=[certs], unattached volumes=[data "
        "certs]: timed out waiting for the condition"
    )
    yield _alike(_FS_GROUP, "certs", events=(("FailedMount", unmounted, ""),))
    missing_secret = 'MountVolume.SetUp failed for volume "certs" : secret "certs" not found'
    attached = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) web-1'
    for suffix, reason, message in (
        ("secret", "FailedMount", missing_secret),
        ("attach", "FailedAttachVolume", attached),
        ("map", "FailedMapVolume", 'MapVolume.SetUpDevice failed for volume "pvc-1" : no device'),
        ("sandbox", "FailedCreatePodSandBox", network),
        ("resize", "FileSystemResizeFailed", "MountVolume.NodeExpandVolume failed"),
        ("mismatch", "FailedMountOnFilesystemMismatch", "the file system is xfs, not ext4"),
    ):
        yield _alike(_SLOW_MOUNT, suffix, events=((reason, message, ""),))
    late = PlantedEvent("SuccessfulAttachVolume", 'for volume "pvc-1"', first=450, last=450)
    yield _alike(_SLOW_MOUNT, "late-attach", events=(late,))
    yield _alike(_SLOW_MOUNT, "empty", spec=_changed(_SLOW_MOUNT.spec, ("volumes",), [_EMPTY]))
    wrapped = {
        "command": [HELPER_PATH, "--", "sh", "-c", "true"],
        "volumeMounts": [{"name": _EMPTY["name"], "mountPath": HELPER_MOUNT}],
    }
    settled = {
        **_UNSETTLED.spec,
        "initContainers": [{**init("setup"), **wrapped}],
        "volumes": [_EMPTY],
    }
    for suffix, key, text, spec in (
        ("applied", "podsettle.dev/applied", "covered/postInitSleep", settled),
        ("skip", "podsettle.dev/skip", "true", _UNSETTLED.spec),
    ):
        metadata = _changed(_UNSETTLED.metadata, ("annotations",), {key: text})
        yield _alike(_UNSETTLED, suffix, metadata=metadata, spec=spec)


PLANTS: tuple[Plant, ...] = (
    _INIT_255,
    _STEP_255,
    _UMOUNT,
    _UMOUNT_UNKNOWN,
    _RELABEL,
    _CREATE_ERROR,
    _EARLY,
    replace(_EARLY, name="never", node=WAITING),
    _HANDLER,
    _UNLISTED_HANDLER,
    _FS_GROUP,
    _SLOW_MOUNT,
    _UNSETTLED,
)
"""The pods with a symptom."""
LOOK_ALIKES: tuple[Plant, ...] = tuple(_look_alikes())
"""Pods each of which differs in one field from a pod with a symptom."""


def node(name: str, runtime: str, handlers: list[str] | None = None) -> Json:
    """Return a node."""
    listed = [{"name": each} for each in handlers] if handlers is not None else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "nodeInfo": {
                "containerRuntimeVersion": runtime,
                "kubeletVersion": KUBELET,
                **dict.fromkeys(
                    (
                        "architecture", "bootID", "kernelVersion", "kubeProxyVersion", "machineID",
                        "operatingSystem", "osImage", "systemUUID",
                    ),
                    "",
                ),
            },
            **({"runtimeHandlers": listed} if listed else {}),
        },
    }  # fmt: skip


def request(node_name: str, content: str = "") -> Json:
    """Return the certificate request of a new node. `content` is the PEM text in base64."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": f"csr-{node_name}"},
        "spec": {
            "signerName": REQUESTS[node_name],
            "request": content,
            "username": f"system:node:{node_name}",
            "usages": ["digital signature", "server auth"],
        },
    }


def approval(created: datetime) -> Json:
    """Return the status of a request that was approved some time after its node was created."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "Test",
        "lastTransitionTime": stamp(created + APPROVAL_DELAY),
    }
    return {"conditions": [condition]}


def dump(namespace: str, now: datetime) -> Json:
    """Return a List of every pod, its events, the nodes, the requests, the policy and the class."""
    items: list[Json] = [
        RUNTIME_CLASS,
        POLICY,
        {"kind": "Namespace", "metadata": {"name": namespace}},
    ]
    for name, runtime in NODE_RUNTIMES.items():
        items.append(_created(node(name, runtime, NODE_HANDLERS.get(name)), now))
    for name in REQUESTS:
        status = approval(now) if name != WAITING else {}
        items.append({**_created(request(name), now), "status": status})
    for plant in (*PLANTS, *LOOK_ALIKES):
        pod = _created(plant.pod(namespace), now)
        pod["metadata"]["uid"] = plant.name
        items.append({**pod, "status": plant.with_state(now)})
        items += [
            plant.event(index, namespace, plant.name, now) for index in range(len(plant.events))
        ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _created(document: Json, now: datetime) -> Json:
    return {**document, "metadata": {**document["metadata"], "creationTimestamp": stamp(now)}}
