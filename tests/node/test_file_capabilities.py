"""Capabilities of a program's file in containers of real runtimes, with and without wrappers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from tests.support.kube.cluster import Json
from tests.support.node.containerd import Containerd
from tests.support.node.crio import Crio
from tests.support.node.deliveries import BOTH, DELIVERIES, LIMITED, PLAIN, Settled
from tests.support.node.image_files import CAPABLE, NET_BIND_SERVICE
from tests.support.node.node import RealNode
from tests.support.node.runtime import Runtime
from tools.crio import module_build

SHOW = (CAPABLE, "/proc/self/status")
HELPER, HELPER_PATH = "podsettle-linger", "/podsettle/linger"
CONFINED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
}
"""As the charts of ingress-nginx and CoreDNS have it."""
USERS: Mapping[str, Json] = {"root": {"runAsUser": 0}, "user": {"runAsUser": 101}}
RUNTIMES: Mapping[str, Callable[[], Runtime]] = {
    "containerd-2.4": lambda: Containerd("2.4"),
    "containerd-1.7": lambda: Containerd("1.7"),
    "CRI-O": lambda: Crio(module_build()),
}


@pytest.fixture(scope="module", params=[*RUNTIMES])
def node(shared_node: Callable[[Runtime], RealNode], request: pytest.FixtureRequest) -> RealNode:
    return shared_node(RUNTIMES[request.param]())


def capabilities_in(text: str) -> int:
    """Return the effective capabilities in the text of /proc/PID/status."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1], 16)


def security(name: str, *, confined: bool = True) -> Json:
    kept = CONFINED if confined else {"capabilities": CONFINED["capabilities"]}
    return {"securityContext": kept | USERS[name]}


def containers(image: str) -> dict[str, Json]:
    """Return containers by name, each of which prints its status."""
    found: dict[str, Json] = {}
    for user in USERS:
        found[user] = {"command": [*SHOW], **security(user)}
        found[f"{user}-escalates"] = {"command": [*SHOW], **security(user, confined=False)}
        script = f"exec {' '.join(SHOW)}"
        found[f"{user}-shell"] = {"command": ["sh", "-c", script], **security(user)}
    return {name: {"name": name, "image": image, **fields} for name, fields in found.items()}


EXPECTED = {
    "root": NET_BIND_SERVICE,
    "root-escalates": NET_BIND_SERVICE,
    "root-shell": NET_BIND_SERVICE,
    "user": NET_BIND_SERVICE,
    "user-escalates": NET_BIND_SERVICE,
    # Without privilege escalation the shell has none, and what it starts gets none.
    "user-shell": 0,
}


def test_programs_have_the_capabilities_that_they_have_without_podsettle(settled: Settled) -> None:
    each = containers(settled.images.capable)
    spec = {
        "initContainers": [{**fields, "name": f"init-{name}"} for name, fields in each.items()],
        "containers": [*each.values()],
    }
    ended = list(settled.run_in((PLAIN, *DELIVERIES, *LIMITED, BOTH), "capable", spec))
    assert len(ended) > 5
    for delivery, pod in ended:
        for prefix in ("init-", ""):
            found = {
                name: capabilities_in(settled.log(delivery, "capable", f"{prefix}{name}"))
                for name in each
            }
            assert found == EXPECTED, delivery
        assert wrapped_in(pod) == expected_wrapped(delivery), delivery
        settled.delete(delivery, "capable")


def wrapped_in(pod: Json) -> set[str]:
    return {each["name"] for each in pod["spec"]["containers"] if len(each["command"]) > 3}


def expected_wrapped(delivery: str) -> set[str]:
    if delivery == BOTH:
        return EXPECTED.keys() - {"user"}
    if delivery.endswith("Shell"):
        return {"root-shell", "user-shell"}
    # Those in which the program would lose nothing.
    return {"root", "root-escalates", "root-shell", "user-escalates"} if delivery else set()


@pytest.mark.parametrize(("user", "expected"), [("root", NET_BIND_SERVICE), ("user", 0)])
def test_program_behind_a_helper_of_its_author_loses_them_unless_it_is_root(
    user: str, expected: int, settled: Settled
) -> None:
    """This is what the remedies avoid. podsettle delivers the helper that the pod lacks."""
    mount = {"name": HELPER, "mountPath": "/podsettle"}
    main = {
        "name": "main",
        "image": settled.images.capable,
        "command": [HELPER_PATH, "--open-files", "4096", "--", *SHOW],
        "volumeMounts": [mount],
        **security(user),
    }
    volume = {"name": HELPER, "emptyDir": {"medium": "Memory"}}
    name = f"behind-{user}"
    settled.run(LIMITED[1], name, {"containers": [main], "volumes": [volume]})
    assert capabilities_in(settled.log(LIMITED[1], name, "main")) == expected
    settled.delete(LIMITED[1], name)
