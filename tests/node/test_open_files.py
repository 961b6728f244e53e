"""The limits on open files in containers of real runtimes, with and without openFiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from tests.support.kube.cluster import Json
from tests.support.node.containerd import Containerd
from tests.support.node.crio import Crio
from tests.support.node.deliveries import LIMITED, LIMITS, PLAIN, Settled, namespace_of
from tests.support.node.delivery_cases import in_shell
from tests.support.node.node import RealNode
from tests.support.node.optional_builds import crio_or_skip
from tests.support.node.pods import states
from tests.support.node.runtime import Runtime
from tools.crio import FIXED

SHOW = ("cat", "/proc/self/limits")
USERS: Mapping[str, Json] = {
    "root": {},
    "user": {"securityContext": {"runAsUser": 4242}},
}
PROBED = "until [ -s /tmp/limits ]; do sleep 0.1; done; cat /tmp/limits; exec sleep 1000"


RUNTIMES: Mapping[str, Callable[[], Runtime]] = {
    "containerd-2.4": lambda: Containerd("2.4"),
    "containerd-1.7": lambda: Containerd("1.7"),
    "CRI-O": lambda: Crio(crio_or_skip(FIXED)),
}


@pytest.fixture(scope="module", params=[*RUNTIMES])
def node(shared_node: Callable[[Runtime], RealNode], request: pytest.FixtureRequest) -> RealNode:
    return shared_node(RUNTIMES[request.param]())


def limits_in(text: str) -> tuple[int, int]:
    """Return the soft and the hard limit in the text of /proc/PID/limits."""
    found = re.search(r"Max open files +(\d+) +(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


def expected_after(delivery: str, plain: tuple[int, int]) -> tuple[int, int]:
    """Return the limits of a wrapped container, from those of the runtime."""
    if not delivery:
        return plain
    hard = min(plain[1], LIMITS["hard"])
    return min(LIMITS["soft"], hard), hard


def limits_of_containers(settled: Settled, delivery: str) -> dict[str, tuple[int, int]]:
    """Return the limits of init and regular containers, as root and as another user."""
    image = settled.images.busybox
    programs: dict[str, Json] = {
        name: {"command": ["sh", "-c", " ".join(SHOW)]}
        if delivery.endswith("Shell")
        else {"command": [*SHOW]}
        for name in USERS
    }
    spec = {
        where: [
            {"name": f"{prefix}-{name}", "image": image, **programs[name], **fields}
            for name, fields in USERS.items()
        ]
        for where, prefix in (("initContainers", "init"), ("containers", "regular"))
    }
    settled.run(delivery, "limits", spec)
    names = [each["name"] for containers in spec.values() for each in containers]
    return {name: limits_in(settled.log(delivery, "limits", name)) for name in names}


@pytest.fixture(scope="module")
def plain(settled: Settled) -> tuple[int, int]:
    """The limits that the runtime gives to containers."""
    (found,) = set(limits_of_containers(settled, PLAIN).values())
    return found


@pytest.mark.parametrize("delivery", LIMITED)
def test_init_and_regular_containers_have_the_limits_as_any_user(
    delivery: str, settled: Settled, plain: tuple[int, int]
) -> None:
    if not settled.supports(delivery):
        pytest.skip("the runtime mounts no image volumes")
    found = limits_of_containers(settled, delivery)
    assert set(found.values()) == {expected_after(delivery, plain)}
    assert found["init-root"] != plain


@pytest.mark.parametrize("delivery", [PLAIN, *LIMITED])
def test_exec_and_exec_probes_keep_the_limits_of_the_runtime(
    delivery: str, settled: Settled, plain: tuple[int, int]
) -> None:
    """They are no children of process 1. The page says so."""
    if not settled.supports(delivery):
        pytest.skip("the runtime mounts no image volumes")
    script = "cat /proc/self/limits >/tmp/limits"
    probe: Json = {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1}
    main = in_shell("main", PROBED, settled.images.busybox, startupProbe=probe)
    settled.create(delivery, "probed", {"containers": [main]})
    settled.await_pod(delivery, "probed", lambda pod: "running" in states(pod).get("main", {}))
    settled.await_pod(
        delivery, "probed", lambda _pod: "open files" in settled.log(delivery, "probed", "main")
    )
    assert limits_in(settled.log(delivery, "probed", "main")) == plain
    for path, expected in (
        ("/proc/self/limits", plain),
        ("/proc/1/limits", expected_after(delivery, plain)),
    ):
        where = ("-n", namespace_of(delivery), "probed")
        done = settled.cluster.kubectl("exec", *where, "--", "cat", path)
        assert limits_in(done.stdout) == expected, done.stderr
    settled.delete(delivery, "probed")
