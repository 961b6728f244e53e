"""Certificates that podsettle manages itself, as a real API server meets them.

failurePolicy is Fail throughout: a handshake that fails is a pod that is not created.
"""

from __future__ import annotations

import base64
import hashlib
import random
import signal
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.e2e_pods import create, is_called, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    FAIL,
    HOST,
    OPT_IN,
    OWN,
    POLICIES,
    RELEASE,
    ROUTING,
    Installation,
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.long_forms import IS_LONG
from tests.support.needs import libfaketime
from tests.support.paths import CHART
from tests.support.pod_load import creating_pods
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.tls.authority import Authority, fingerprint

pytestmark = pytest.mark.slow

CHOSEN = "chosen"
"""The namespace of the pods."""
LEAF_LIFE = "90s"
"""A leaf is replaced 30 s before it expires. A longer stall of the machine would fail pods."""
CA_LIVES = ("6m", "18m", "54m", "18m") if IS_LONG else ("6m", "18m")
"""Each lifetime is at least three times as long as the one before it, or shorter, so that a CA is
due as soon as it has a successor. A new CA signs leaves after a twentieth of its lifetime, 54 s or
more. In this time the API server has to receive it."""
ROTATION_SECONDS = 600
"""Longer than a propagation of 162 s and the rest of a leaf, with a reserve for a slow machine."""


LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
SECRET = f"{OWN}/secrets/{RELEASE}-tls"


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start(ROUTING) as cluster:
        yield cluster


@pytest.fixture
def release(own: KubeCluster, tmp_path: Path) -> Iterator[Installation]:
    """A release without a replica. No creation of a pod waits for a webhook longer than 30 s."""
    with installed(own, tmp_path) as installation:
        # The chart's timeout would let a machine that stalls refuse pods.
        installation.install(*FAIL, "--set=webhook.timeoutSeconds=30")
        own.request("POST", POLICIES, policy("opt-in"))  # It stays when the release goes.
        own.namespace(CHOSEN, labels={"podsettle.dev/policy": "opt-in"})
        yield installation
        installation.stop_all(signal.SIGKILL)
        installation.helm("uninstall", RELEASE)
        own.request("DELETE", LEASE)  # As the garbage collector does, which does not run here.


def stored(release: Installation) -> Authority:
    """Return what is in the Secret now."""
    data = release.cluster.request("GET", SECRET).body.get("data")
    return Authority.read({k: base64.b64decode(v) for k, v in (data or {}).items()})


def patch_secret(release: Installation, data: Mapping[str, bytes | None]) -> None:
    """Write some keys of the Secret, as `kubectl patch` does."""
    values = {k: v if v is None else base64.b64encode(v).decode() for k, v in data.items()}
    assert release.cluster.request("PATCH", SECRET, {"data": values}).status == 200


def bundle(release: Installation) -> bytes:
    """Return what the API server trusts when it calls podsettle."""
    return base64.b64decode(release.webhooks()[OPT_IN]["clientConfig"].get("caBundle", ""))


def await_settled(release: Installation) -> None:
    """Wait until pods are settled. Until then, the API server may refuse them."""
    await_that(lambda: is_called(release.cluster, CHOSEN), "pods are settled")


def check_settled(release: Installation) -> None:
    """Check that a pod is settled now."""
    made = create(release.cluster, simple_pod("pod", CHOSEN), dry_run=True)
    assert "podsettle.dev/applied" in made["metadata"].get("annotations", {})


def leaf(authority: Authority) -> str:
    return fingerprint(authority.leaf.certificate) if authority.leaf else ""


class Watcher(threading.Thread):
    """A client that opens connections all the time, as an API server that was just started does.

    It trusts what is registered at that moment and nothing else.
    """

    def __init__(self, release: Installation) -> None:
        super().__init__(daemon=True)
        self.leaves: set[bytes] = set()
        self.cas: set[str] = set()
        self.failed: list[str] = []
        self.handshakes = 0
        self._release = release
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            trusted = bundle(self._release)
            replica = random.choice([*self._release.admitted])
            try:
                self.leaves.add(shown_by(self._release, replica, trusted))
                self.handshakes += 1
            except OSError as error:
                self.failed.append(f"{datetime.now(UTC)}: {error}")
            self.cas |= {fingerprint(ca) for ca in Authority.read({"ca.crt": trusted}).cas}

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


def shown_by(release: Installation, replica: Replica, trusted: bytes) -> bytes:
    """The certificate that a client with this bundle accepts."""
    context = ssl.create_default_context(cadata=trusted.decode())
    address = (release.address, replica.port)
    with (
        socket.create_connection(address, timeout=TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


def test_rotation_under_load_fails_no_pod(release: Installation) -> None:
    """CAs are replaced by their age and by force, leaves by their age, and each writer exits.

    A CA is due if less than a third of `--ca-life` remains. Replicas with a longer one therefore
    replace the CA of their predecessors at once, and no CA needs a short life.
    """
    for _ in range(2):
        release.start_ready(*lives(CA_LIVES[0]))
    await_settled(release)
    watcher = Watcher(release)

    def await_last_ca() -> None:
        """Wait until the newest CA has signed a leaf, and clients have received this leaf."""
        last = fingerprint(stored(release).cas[0])
        await_that(
            lambda: stored(release).issuer_fingerprint == last,
            "the last CA signs",
            ROTATION_SECONDS,
        )
        signed = leaf(stored(release))
        await_that(
            lambda: signed in watcher.shown(),
            "the leaf of the last CA is served",
            ROTATION_SECONDS,
        )

    with (
        watcher.running(),
        creating_pods(
            release.cluster, simple_pod("pod", CHOSEN), per_second=20, threads=16
        ) as load,
    ):
        for ca_life in CA_LIVES[1:]:
            before = fingerprint(stored(release).cas[0])
            exiting = [*release.replicas]
            for _ in exiting:
                release.start_ready(*lives(ca_life))
            for replica in exiting:
                release.replicas.remove(replica)
                release.withdraw(replica)
                replica.signal(signal.SIGTERM)
            assert [each.await_end() for each in exiting] == [0, 0]
            await_that(
                lambda before=before: fingerprint(stored(release).cas[0]) != before,  # type: ignore[misc]
                "the CA is replaced by its age",
            )
            await_last_ca()
        replaced = stored(release)
        emptied = [{"op": "remove", "path": "/data"}]
        assert release.cluster.request("PATCH", SECRET, emptied).status == 200
        await_that(lambda: stored(release).leaf, "the emptied Secret has new certificates")
        assert not set(stored(release).cas) & set(replaced.cas)
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


def test_corrupt_secret_is_repaired_while_the_certificate_stays_served(
    release: Installation,
) -> None:
    one, two = release.start_ready(*LONGER), release.start_ready(*LONGER)
    await_settled(release)
    watcher = Watcher(release)
    with watcher.running():
        for broken in ({"tls.key": b"rubbish"}, {"tls.crt": None}, {"ca.key": b"rubbish"}):
            was = stored(release)
            patch_secret(release, broken)
            await_that(
                lambda: stored(release).leaf and len(stored(release).keys) > 0,
                "the Secret is mended",
            )
            assert was.cas[0] in stored(release).cas
            check_settled(release)
            assert one.is_ready()
            assert two.is_ready()
        await_that(lambda: watcher.handshakes > 10, "clients have connected")
    assert watcher.failed == []


def test_deleted_secret_is_reported_until_it_exists_again(
    release: Installation,
) -> None:
    for _ in range(2):
        release.start_ready(*PROPAGATED_SOON)
    await_settled(release)
    assert release.cluster.request("DELETE", SECRET).status == 200
    for replica in release.replicas:

        def is_reported(replica: Replica = replica) -> bool:
            answer = replica.ask("/readyz?verbose")
            assert answer is not None
            assert answer.status_code == 200, answer.text
            notes = {each["name"]: each["note"] for each in answer.json()["checks"]}
            return "does not exist" in notes["certificate"]

        await_that(is_reported, "the loss is reported")
    check_settled(release)
    watcher = Watcher(release)
    with watcher.running():
        release.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values")
        await_that(lambda: stored(release).leaf, "there are new certificates")
        new = leaf(stored(release))
        await_that(lambda: new in watcher.shown(), "the new leaf is served")
        check_settled(release)
    assert watcher.failed == []


def test_stopped_process_renews_its_certificate_after_it_continues(
    release: Installation,
) -> None:
    one = release.start_ready("--leaf-life", "8s", "--ca-life", "32s")
    one.signal(signal.SIGSTOP)

    def has_expired() -> bool:
        # Read each time: a request that the process had sent may still replace the leaf.
        shown = stored(release).leaf
        assert shown
        return datetime.now(UTC) > shown.certificate.not_valid_after_utc

    await_that(has_expired, "the leaf has expired")
    was = leaf(stored(release))
    one.signal(signal.SIGCONT)
    await_that(lambda: leaf(stored(release)) != was, "a new leaf is there")
    await_that(one.is_ready, "it is ready again")
    await_settled(release)


@pytest.mark.needs("libfaketime")
def test_certificate_stays_valid_when_the_clock_jumps_ahead_and_back(
    release: Installation, tmp_path: Path
) -> None:
    """After a suspension the wall clock has jumped, and the clock of the event loop has not."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    one = release.start_ready(
        variables={
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    await_settled(release)
    for moved in ("+25d", "+0", "+300d", "+0"):
        was = leaf(stored(release))
        clock.write_text(moved)
        await_that(lambda was=was: leaf(stored(release)) != was, f"renewed after {moved}")  # type: ignore[misc]
        await_that(one.is_ready, "it is ready")
        # By a clock that has not moved, such as the API server's, it is valid as well.
        assert shown_by(release, one, bundle(release))
        await_settled(release)
