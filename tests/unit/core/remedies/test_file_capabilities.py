"""Containers whose program may lose the capabilities of its file behind the helper."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import Json, container, decide_pod, pod, policy, reasons, view
from webhook.core.policy.snapshot import Snapshot

CONTAINERD_DEFAULT = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID"),
    *("SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
CRIO_DEFAULT = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETPCAP"),
    *("NET_BIND_SERVICE", "KILL"),
)
ALL = (*CONTAINERD_DEFAULT, "NET_ADMIN", "SYS_TIME")
REMEDIES: dict[str, Json] = {
    "openFiles": {"soft": 4096},
    "postInitSleep": {"containers": ["*"]},
}


def seen(remedy: str, **settings: Any) -> Snapshot:
    return view(policy(remedies={remedy: {**REMEDIES[remedy], **settings}}))


def decided(remedy: str, security: Any, *, of_pod: Any = None, **settings: Any) -> list[str]:
    """Return the reasons of a pod with one container."""
    only = container("server", "/server", securityContext=security)
    document = pod(containers=[only], restartPolicy="Never", securityContext=of_pod)
    return reasons(decide_pod(document, seen(remedy, **settings)))


INGRESS = {
    "runAsUser": 101,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
}


LEFT, WRAPPED = ["server: FileCapabilities"], ["server: Applied"]


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize(
    ("security", "of_pod", "expected"),
    [
        (INGRESS, None, LEFT),
        (INGRESS | {"runAsUser": None}, None, LEFT),  # CoreDNS: its image decides about the user.
        (INGRESS | {"runAsUser": None}, {"runAsUser": 101}, LEFT),
        (INGRESS, {"runAsUser": 0}, LEFT),
        ({"allowPrivilegeEscalation": False}, None, LEFT),
        ({"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}, {}, LEFT),
        (None, None, WRAPPED),
        ({}, None, WRAPPED),
        (INGRESS | {"allowPrivilegeEscalation": None}, None, WRAPPED),
        (INGRESS | {"allowPrivilegeEscalation": True}, None, WRAPPED),
        (INGRESS | {"runAsUser": 0}, {"runAsUser": 101}, WRAPPED),
        (INGRESS | {"runAsUser": None}, {"runAsUser": 0}, WRAPPED),
        (INGRESS | {"capabilities": {"drop": ["ALL"]}}, None, WRAPPED),
    ],
)
def test_program_that_may_have_file_capabilities_is_left_without_the_helper(
    remedy: str, security: Any, of_pod: Any, expected: list[str]
) -> None:
    for delivery in ("Auto", "Binary", "ImageVolume"):
        assert decided(remedy, security, of_pod=of_pod, delivery=delivery) == expected, delivery


def of_containerd(add: list[str], drop: list[str]) -> set[str]:
    """Return what a container gets, by containerd `internal/cri/opts/spec_opts.go`."""
    known = {f"CAP_{name}" for name in ALL}
    found = {f"CAP_{name}" for name in CONTAINERD_DEFAULT}
    if "all" in [name.lower() for name in add]:
        found = set(known)
    if "all" in [name.lower() for name in drop]:
        found = set()
    found |= {f"CAP_{name.upper()}" for name in add if name.lower() != "all"}
    found -= {f"CAP_{name.upper()}" for name in drop if name.lower() != "all"}
    return found & known  # runc ignores names that it does not know.


def of_crio(add: list[str], drop: list[str]) -> set[str]:
    """Return the same by cri-o `internal/factory/container/container.go`."""

    def prefixed(names: list[str]) -> set[str]:
        upper = [name.upper() for name in names if name.lower() != "all"]
        return {name if name.startswith("CAP_") else f"CAP_{name}" for name in upper}

    adds_all = "all" in [name.lower() for name in add]
    drops_all = "all" in [name.lower() for name in drop]
    found = set() if adds_all or drops_all else {f"CAP_{name}" for name in CRIO_DEFAULT}
    if adds_all and not drops_all:
        found = {f"CAP_{name}" for name in ALL}
    return (found | prefixed(add)) - prefixed(drop)


NAMES = st.lists(
    st.sampled_from(
        [
            *("ALL", "all", "NET_BIND_SERVICE", "net_bind_service", "CAP_NET_BIND_SERVICE"),
            *("CAP_NET_ADMIN", "cap_net_admin", "NET_ADMIN"),
        ]
    ),
    max_size=4,
) | st.sampled_from([[*CONTAINERD_DEFAULT], [*CONTAINERD_DEFAULT, "NET_ADMIN"]])


@given(add=NAMES, drop=NAMES)
def test_container_is_wrapped_only_if_neither_runtime_gives_it_a_capability(
    add: list[str], drop: list[str]
) -> None:
    security = INGRESS | {"capabilities": {"add": add, "drop": drop}}
    wrapped = decided("openFiles", security) == ["server: Applied"]
    if wrapped:
        assert not of_containerd(add, drop)
        assert not of_crio(add, drop)
    elif not any(name.lower().startswith("cap_") for name in (*add, *drop)):
        assert of_containerd(add, drop)
