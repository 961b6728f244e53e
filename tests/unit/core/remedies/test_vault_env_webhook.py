"""podsettle beside a webhook that moves commands into the arguments of a program of its own.

The API server calls both in some order, and each of them a second time if its reinvocationPolicy is
IfNeeded.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.support.factories import Json, mutate_pod, policy, view

PROGRAM = "/vault/vault-env"
VOLUME = {"name": "vault-env", "emptyDir": {"medium": "Memory"}}
MOUNT = {"name": "vault-env", "mountPath": "/vault/"}
COPYING: Json = {
    "name": "copy-vault-env",
    "image": "registry.example/bank-vaults/vault-env:1",
    "command": ["sh", "-c", "cp /usr/local/bin/vault-env /vault/"],
    "volumeMounts": [MOUNT],
}
HELPER, HELPER_PATH, MARKER = "podsettle-linger", "/podsettle/linger", ": podsettle;"
BOTH: Json = {
    "postInitSleep": {"when": "Always", "containers": ["*"]},
    "openFiles": {"soft": 4096, "initContainers": ["*"]},
}
REMEDIES: dict[str, Json] = {
    "sleep by helper": {"postInitSleep": {**BOTH["postInitSleep"], "delivery": "Binary"}},
    "sleep by shell": {"postInitSleep": BOTH["postInitSleep"]},
    "both": BOTH,
}
GATES: Json = {"kubeletGate": {}, "startGate": {"waitFor": [{"dns": "a"}]}}
CALLS = [
    [*first, *second]
    for first in (("podsettle", "vault"), ("vault", "podsettle"))
    for second in ((), ("podsettle",), ("vault",), first)
]


def changed_by_vault(document: Json, *, every: bool) -> Json:
    """Change a pod as vault-secrets-webhook of bank-vaults does (`pkg/webhook/pod.go` of 1.23.1).

    By an annotation it changes every container, else those with a variable of a secret.
    """
    pod: Json = json.loads(json.dumps(document))
    spec = pod["spec"]
    if VOLUME in spec.get("volumes", ()):
        return pod
    for container in [*spec["initContainers"], *spec["containers"]]:
        if every or "env" in container:
            args = [*container.get("command", ()), *container.get("args", ())]
            mounts = [*container.get("volumeMounts", ()), MOUNT]
            container |= {"command": [PROGRAM], "args": args, "volumeMounts": mounts}
    spec["initContainers"] = [COPYING, *spec["initContainers"]]
    spec["volumes"] = [*spec.get("volumes", ()), VOLUME]
    return pod


def created() -> Json:
    secret = {"env": [{"name": "SECRET", "value": "vault:secret/data/x#y"}]}
    program = {"image": "registry.example/app:1", "command": ["/app", "run"], "args": ["x"]}
    script = {"image": "registry.example/app:1", "command": ["sh", "-c", "exec /app"]}
    spec = {
        "restartPolicy": "Never",
        "initContainers": [{"name": "prepare", **program, **secret}, {"name": "plain", **program}],
        "containers": [
            {"name": "main", **program, **secret},
            {"name": "script", **script, **secret},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vault"}, "spec": spec}


def admitted(remedies: Json, calls: list[str], *, every: bool) -> Json:
    pod, seen = created(), view(policy(remedies=remedies))
    for webhook in calls:
        pod = (
            mutate_pod(pod, seen) if webhook == "podsettle" else changed_by_vault(pod, every=every)
        )
    return pod


def strings_of(container: Json) -> list[str]:
    return [*container.get("command", []), *container.get("args", [])]


def wrappers(container: Json) -> int:
    """Return the number of wrappers of podsettle in a container's command and arguments."""
    strings = strings_of(container)
    helpers = sum(
        path == HELPER_PATH and option.startswith("--") for path, option in pairwise(strings)
    )
    return helpers + sum(text.startswith(MARKER) for text in strings)


@pytest.mark.parametrize("every", [False, True], ids=["secrets", "every"])
@pytest.mark.parametrize("calls", CALLS, ids=",".join)
@pytest.mark.parametrize("remedies", REMEDIES.values(), ids=[*REMEDIES])
def test_each_container_has_one_wrapper_and_starts_after_what_it_needs(
    remedies: Json, calls: list[str], every: bool
) -> None:
    spec, given = admitted(remedies, calls, every=every)["spec"], created()["spec"]
    names = [each["name"] for each in spec["initContainers"]]
    assert names.count(HELPER) == 1
    volumes = [each["name"] for each in spec["volumes"]]
    assert len(volumes) == len(set(volumes))
    before = {each["name"]: each for each in [*given["initContainers"], *given["containers"]]}
    for container in [*spec["initContainers"], *spec["containers"]]:
        paths = [each["mountPath"] for each in container.get("volumeMounts", ())]
        assert len(paths) == len(set(paths))
        strings, name = strings_of(container), container["name"]
        if name in before:
            assert wrappers(container) == 1, name
            plain = strings_of(before[name])
            assert strings[-len(plain) :] == plain
    for index, container in enumerate(spec["initContainers"]):
        strings = strings_of(container)
        if wrappers(container) and HELPER_PATH in strings:
            assert index > names.index(HELPER), container["name"]
        if PROGRAM in strings:
            assert index > names.index("copy-vault-env"), container["name"]


@pytest.mark.parametrize("every", [False, True], ids=["secrets", "every"])
@pytest.mark.parametrize("calls", CALLS, ids=",".join)
def test_pod_has_each_gate_once(calls: list[str], every: bool) -> None:
    inits = admitted(GATES, calls, every=every)["spec"]["initContainers"]
    names = [each["name"] for each in inits if each["name"].startswith("podsettle-")]
    assert names == ["podsettle-kubelet-gate"]
