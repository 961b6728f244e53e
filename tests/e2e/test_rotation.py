"""Certificates that podsettle manages itself, as a real API server meets them.

failurePolicy is Fail throughout: a handshake that fails is a pod that is not created.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.helm_release import policy
from tests.support.kube.cluster import KubeCluster
from tests.support.long_forms import IS_LONG
from tests.support.manual_install import Installation, Replica
from tests.support.needs import libfaketime
from tests.support.pod_load import creating_pods
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tests.support.webhook_configuration import PATH as CONFIGURATIONS
from webhook.tls.authority import Authority, fingerprint

pytestmark = pytest.mark.slow

LEAF_LIFE = "90s"
"""A leaf is replaced 30 s before it expires. A longer stall of the machine would fail pods."""
CA_LIVES = ("6m", "18m", "54m", "18m") if IS_LONG else ("6m", "18m")
"""Each lifetime is at least three times as long as the one before it, or shorter, so that a CA is
due as soon as it has a successor. A new CA signs leaves after a twentieth of its lifetime, 54 s or
more. In this time the API server has to receive it."""
ROTATION_SECONDS = 600
"""Longer than a propagation of 162 s and the rest of a leaf, with a reserve for a slow machine."""


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        cluster.create(POLICIES, policy("settle"))
        yield cluster


@pytest.fixture
def installation(own: KubeCluster, tmp_path: Path) -> Iterator[Installation]:
    with TcpProxy.to("127.0.0.1", 9) as balancer:  # No replica is behind it yet.
        made = Installation(own, balancer, tmp_path)
        # The webhook's timeout of 5 s would let a machine that stalls refuse pods.
        path = f"{CONFIGURATIONS}/{made.configuration}"
        longest = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]
        assert own.request("PATCH", path, longest).status == 200
        try:
            yield made
        finally:
            made.close()


def leaf(authority: Authority) -> str:
    return fingerprint(authority.leaf.certificate) if authority.leaf else ""


class Watcher(threading.Thread):
    """A client that opens connections all the time, as an API server that was just started does.

    It trusts what is registered at that moment and nothing else.
    """

    def __init__(self, installation: Installation) -> None:
        super().__init__(daemon=True)
        self.leaves: set[bytes] = set()
        self.cas: set[str] = set()
        self.failed: list[str] = []
        self.handshakes = 0
        self._installation = installation
        self._over = threading.Event()

    def run(self) -> None:
        host = f"podsettle.{self._installation.namespace}.svc"
        while not self._over.wait(0.05):
            bundle = self._installation.bundle()
            try:
                self.leaves.add(_shown(self._installation.balancer.port, host, bundle))
                self.handshakes += 1
            except OSError as error:
                self.failed.append(f"{datetime.now(UTC)}: {error}")
            self.cas |= {fingerprint(ca) for ca in Authority.read({"ca.crt": bundle}).cas}

    def shown(self) -> set[str]:
        """The fingerprints of the leaves seen so far."""
        return {hashlib.sha256(leaf).hexdigest() for leaf in self.leaves}

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self._over.set()
            self.join()


def _shown(port: int, host: str, bundle: bytes) -> bytes:
    """The certificate that a client with this bundle accepts."""
    context = ssl.create_default_context(cadata=bundle.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


def test_both_replicas_serve_the_certificate_that_one_issued(installation: Installation) -> None:
    one, two = installation.start(), installation.start()
    installation.serve(one, two)
    await_that(installation.settles_again, "pods are settled")
    host = f"podsettle.{installation.namespace}.svc"
    shown = {_shown(replica.port, host, installation.bundle()) for replica in (one, two)}
    assert len(shown) == 1
    assert installation.stored().bundle == installation.bundle()
    assert "is held" in installation.holder().log_text()
    assert sum("is held" in replica.log_text() for replica in (one, two)) == 1


def test_rotation_under_load_fails_no_pod(installation: Installation) -> None:
    """CAs are replaced by their age and by force, leaves by their age, and each writer exits.

    A CA is due if less than a third of `--ca-life` remains. Replicas with a longer one therefore
    replace the CA of their predecessors at once, and no CA needs a short life.
    """
    replicas = [installation.start(*lives(CA_LIVES[0])) for _ in range(2)]
    installation.serve(*replicas)
    await_that(installation.settles_again, "pods are settled")
    watcher = Watcher(installation)

    def await_last_ca() -> None:
        """Wait until the newest CA has signed a leaf, and clients have received this leaf."""
        last = fingerprint(installation.stored().cas[0])
        await_that(
            lambda: installation.stored().issuer_fingerprint == last,
            "the last CA signs",
            ROTATION_SECONDS,
        )
        signed = leaf(installation.stored())
        await_that(
            lambda: signed in watcher.shown(),
            "the leaf of the last CA is served",
            ROTATION_SECONDS,
        )

    with (
        watcher.running(),
        creating_pods(installation.cluster, installation.pod(), per_second=20, threads=16) as load,
    ):
        for ca_life in CA_LIVES[1:]:
            before = fingerprint(installation.stored().cas[0])
            exiting, replicas = replicas, [installation.start(*lives(ca_life)) for _ in range(2)]
            installation.serve(*replicas)
            for replica in exiting:
                replica.process.send_signal(signal.SIGTERM)
            assert [each.process.wait(TIMEOUT_SECONDS) for each in exiting] == [0, 0]
            await_that(
                lambda before=before: fingerprint(installation.stored().cas[0]) != before,  # type: ignore[misc]
                "the CA is replaced by its age",
            )
            await_last_ca()
        replaced = installation.stored()
        installation.empty_secret()
        await_that(lambda: installation.stored().leaf, "the emptied Secret has new certificates")
        assert not set(installation.stored().cas) & set(replaced.cas)
        await_last_ca()
        await_that(lambda: load.created > 1000, "a thousand pods are created")
    print(f"{load}; {len(watcher.leaves)} leaves, {len(watcher.cas)} CAs, ", end="")
    print(f"{watcher.handshakes} handshakes of fresh clients")
    assert load.failed == []
    # A machine that stalls lets reviews wait, and podsettle then sheds them.
    assert [each for each in load.unsettled if "podsettle: Overloaded: " not in each] == []
    assert watcher.failed == []
    assert len(watcher.cas) == len(CA_LIVES) + 1
    assert len(watcher.leaves) >= len(watcher.cas)


def lives(ca_life: str) -> tuple[str, ...]:
    return ("--leaf-life", LEAF_LIFE, "--ca-life", ca_life)


LONGER = ("--leaf-life", "2m", "--ca-life", "8m")
"""The Secret is read every 6 s, and a leaf is replaced 40 s before it expires."""
PROPAGATED_SOON = ("--leaf-life", "60s", "--ca-life", "240s")
"""A new CA signs after 12 s, and a leaf is replaced 20 s before it expires."""


def test_removed_ca_bundle_is_restored(installation: Installation) -> None:
    one = installation.start(*LONGER)
    installation.serve(one)
    before = installation.bundle()
    for _ in range(3):
        installation.remove_bundle()
        await_that(lambda: installation.bundle() == before, "the bundle is back")
    await_that(lambda: one.ready, "it is ready again")
    await_that(installation.settles_again, "the API server has seen it too")


def test_corrupt_secret_is_repaired_while_the_certificate_stays_served(
    installation: Installation,
) -> None:
    one, two = installation.start(*LONGER), installation.start(*LONGER)
    installation.serve(one, two)
    await_that(installation.settles_again, "pods are settled")
    watcher = Watcher(installation)
    with watcher.running():
        for broken in ({"tls.key": b"rubbish"}, {"tls.crt": None}, {"ca.key": b"rubbish"}):
            was = installation.stored()
            installation.patch_secret(broken)
            await_that(
                lambda: installation.stored().leaf and len(installation.stored().keys) > 0,
                "the Secret is mended",
            )
            assert was.cas[0] in installation.stored().cas
            assert installation.settles()
            assert one.ready
            assert two.ready
        await_that(lambda: watcher.handshakes > 10, "clients have connected")
    assert watcher.failed == []


def test_deleted_secret_is_reported_until_it_exists_again(
    installation: Installation,
) -> None:
    one, two = installation.start(*PROPAGATED_SOON), installation.start(*PROPAGATED_SOON)
    installation.serve(one, two)
    await_that(installation.settles_again, "pods are settled")
    installation.delete_secret()
    for replica in (one, two):

        def is_reported(replica: Replica = replica) -> bool:
            answer = replica.readyz()
            assert answer is not None
            assert answer.status_code == 200, answer.text
            notes = {each["name"]: each["note"] for each in answer.json()["checks"]}
            return "does not exist" in notes["certificate"]

        await_that(is_reported, "the loss is reported")
    assert installation.settles()
    watcher = Watcher(installation)
    with watcher.running():
        installation.create_secret()
        await_that(lambda: installation.stored().leaf, "there are new certificates")
        new = leaf(installation.stored())
        await_that(lambda: new in watcher.shown(), "the new leaf is served")
        assert installation.settles()
    assert watcher.failed == []


def test_other_replica_takes_over_from_a_killed_writer(installation: Installation) -> None:
    one, two = installation.start(*LONGER), installation.start(*LONGER)
    installation.serve(one, two)
    await_that(installation.settles_again, "pods are settled")
    killed = installation.holder()
    heir = two if killed is one else one
    killed.process.kill()
    installation.serve(heir)
    installation.patch_secret({"tls.key": b"rubbish"})
    await_that(installation.settles_again, "the other one is called")
    await_that(lambda: installation.stored().leaf, "the other one mends the Secret")
    assert installation.settles()
    assert heir.ready


def test_stopped_process_renews_its_certificate_after_it_continues(
    installation: Installation,
) -> None:
    one = installation.start("--leaf-life", "8s", "--ca-life", "32s")
    installation.serve(one)
    one.process.send_signal(signal.SIGSTOP)

    def has_expired() -> bool:
        # Read each time: a request that the process had sent may still replace the leaf.
        stored = installation.stored().leaf
        assert stored
        return datetime.now(UTC) > stored.certificate.not_valid_after_utc

    await_that(has_expired, "the leaf has expired")
    was = leaf(installation.stored())
    one.process.send_signal(signal.SIGCONT)
    await_that(lambda: leaf(installation.stored()) != was, "a new leaf is there")
    await_that(lambda: one.ready, "it is ready again")
    await_that(installation.settles_again, "the API server has seen it too")


@pytest.mark.needs("libfaketime")
def test_certificate_stays_valid_when_the_clock_jumps_ahead_and_back(
    installation: Installation, tmp_path: Path
) -> None:
    """After a suspension the wall clock has jumped, and the clock of the event loop has not."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    one = installation.start(
        environment={
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    installation.serve(one)
    await_that(installation.settles_again, "pods are settled")
    host = f"podsettle.{installation.namespace}.svc"
    for moved in ("+25d", "+0", "+300d", "+0"):
        was = leaf(installation.stored())
        clock.write_text(moved)
        await_that(lambda was=was: leaf(installation.stored()) != was, f"renewed after {moved}")  # type: ignore[misc]
        await_that(lambda: one.ready, "it is ready")
        # By a clock that has not moved, such as the API server's, it is valid as well.
        assert _shown(one.port, host, installation.bundle())
        await_that(installation.settles_again, "the API server has seen it too")
