"""The pods of the experiment, and what their containers' exit codes say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from race.cells import Condition, Delivery, Kind, Provocation
from webhook.core.constants import OWN_CONTAINERS

Json = dict[str, Any]

# Labels of the pods. The policies select by the second one.
CONDITION_LABEL = "race/condition"
POLICY_LABEL = "race/policy"
LOST_EXIT_CODE = 255
# One sandbox serves many containers, so that most of the time goes into containers.
_INIT_CONTAINERS, _REGULAR_CONTAINERS = 20, 5
# An unwrapped pod fails with its first lost exit code, so that further containers do not start.
_UNWRAPPED_INIT_CONTAINERS = 10
_WORK = "work-"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    condition: Condition
    code: int
    is_added: bool = False
    """Whether podsettle added the container to the pod. Its failure is the delivery's."""


def name_of(condition: Condition) -> str:
    """Return a name of a condition that is valid as a label's value and in a pod's name."""
    parts = (condition.provocation, condition.delivery, condition.lifetime_ms, condition.kind)
    return "-".join(map(str, parts)).lower()


def expected_exits(condition: Condition) -> int:
    """Return how many containers of a pod are counted for its condition, if none of them fails."""
    if condition.kind is Kind.REGULAR:
        return _REGULAR_CONTAINERS
    return _INIT_CONTAINERS if condition.is_wrapped else _UNWRAPPED_INIT_CONTAINERS


def make_pod(condition: Condition, image: str) -> Json:
    """Return a pod with containers of a condition. They would all exit with 0 at once."""
    count = expected_exits(condition)
    work = [
        {"name": f"{_WORK}{n}", "image": image, "command": _command(condition, n)}
        for n in range(count)
    ]
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
    }
    if condition.kind is Kind.INIT:
        spec["initContainers"] = work
        spec["containers"] = [{"name": "main", "image": image, "command": ["true"]}]
    else:
        spec["containers"] = work
    if condition.provocation is not Provocation.NATURAL:
        spec["runtimeClassName"] = runtime_class_name(condition.provocation)
    labels = {CONDITION_LABEL: name_of(condition)}
    if condition.is_wrapped:
        labels[POLICY_LABEL] = policy_name(condition)
    metadata = {"generateName": f"{name_of(condition)}-", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _command(condition: Condition, number: int) -> list[str]:
    """Return a command. It decides which delivery `Auto` chooses."""
    if not condition.is_wrapped and condition.lifetime_ms:
        return ["sleep", f"{condition.lifetime_ms / 1000:g}"]
    if condition.delivery is Delivery.SHELL:
        return ["sh", "-c", "true"]
    if condition.delivery in (Delivery.AUTO, Delivery.NONE) and number % 2:
        return ["sh", "-c", "true"]
    return ["true"]


def exits_of(pod: Mapping[str, Any], condition: Condition) -> Iterator[Exit]:
    """Yield the exits of a pod's containers, with those of containers that podsettle added."""
    status = pod.get("status", {})
    lists = (status.get("initContainerStatuses", ()), status.get("containerStatuses", ()))
    for container in (each for statuses in lists for each in statuses):
        ended = container.get("state", {}).get("terminated")
        # Without an id, the kubelet made the state up for a container that never ran.
        if not ended or not ended.get("containerID"):
            continue
        if is_work(container["name"]):
            yield Exit(condition, ended["exitCode"])
        elif container["name"] == "main":
            yield Exit(condition.main, ended["exitCode"])
        elif container["name"] in OWN_CONTAINERS:
            yield Exit(condition, ended["exitCode"], is_added=True)


def is_work(name: str) -> bool:
    """Whether the container of this name is counted for its pod's condition."""
    return name.startswith(_WORK)


def lacks_an_exit(pod: Mapping[str, Any], condition: Condition) -> bool:
    """Whether a pod that has ended failed or lacks an exit, and no exit code explains it.

    After an exit code other than 0, the kubelet starts no further containers.
    """
    found = list(exits_of(pod, condition))
    if any(each.code for each in found):
        return False
    expected = expected_exits(condition) + (condition.kind is Kind.INIT)
    counted = sum(not each.is_added for each in found)
    return pod["status"]["phase"] == "Failed" or counted < expected


def runtime_class_name(provocation: Provocation) -> str:
    """Return the name of the RuntimeClass and of the runtime's handler for a provocation."""
    return f"race-{provocation.lower()}"


def runtime_class(provocation: Provocation) -> Json:
    """Return the RuntimeClass of a provocation."""
    name = runtime_class_name(provocation)
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
    }


def policy_name(condition: Condition) -> str:
    """Return the name of the SettlePolicy that wraps containers of a condition."""
    parts = (condition.delivery, condition.lifetime_ms, condition.kind)
    return "-".join(map(str, parts)).lower()


def policy(condition: Condition, namespace: str) -> Json:
    """Return the SettlePolicy for containers of a condition: the defaults, but for these fields."""
    remedy: Json = {
        "delivery": str(condition.delivery),
        "minLifetime": f"{condition.lifetime_ms}ms",
    }
    if condition.kind is Kind.REGULAR:
        remedy |= {"containers": ["*"]}
    return {
        "apiVersion": "podsettle.dev/v1alpha1",
        "kind": "SettlePolicy",
        "metadata": {"name": policy_name(condition)},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": {"matchLabels": {POLICY_LABEL: policy_name(condition)}},
            "remedies": {"postInitSleep": remedy},
        },
    }
