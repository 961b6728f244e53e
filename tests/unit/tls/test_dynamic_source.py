"""What a replica serves, stores and registers, with a store, a network and a clock that fail."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from tests.support.waiting import TIMEOUT_SECONDS
from webhook.tls.authority import Authority, Lifetimes, fingerprint
from webhook.tls.dynamic_source import (
    SYNC_INTERVAL,
    DynamicSource,
    RegisteredBundles,
    StoreError,
    service_names,
)
from webhook.tls.served_certificate_check import verify_error

NAMES = service_names("podsettle", "podsettle")
HOST = NAMES[0]
DAY = timedelta(days=1)
LIFE = Lifetimes(leaf=30 * DAY, ca=365 * DAY)
# With this interval, each call of `sync` reads the store.
ALWAYS = timedelta(0)


class Memory:
    """A store that refuses a write after another client's write, as a Secret does."""

    title = "Secret podsettle/podsettle-tls"

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.contents: Mapping[str, bytes] | None = {} if contents is None else contents
        self.failure = ""
        self.read_only = ""
        self.writes = 0
        self._read: Mapping[str, bytes] | None = None

    async def read(self) -> Mapping[str, bytes] | None:
        if self.failure:
            raise StoreError(self.failure)
        self._read = self.contents
        return self.contents

    async def write(self, contents: Mapping[str, bytes]) -> None:
        if self.read_only:
            raise StoreError(self.read_only)
        if self.contents is not self._read:
            raise StoreError("409: the object has been modified")
        self.contents = self._read = {**(self.contents or {}), **contents}
        self.writes += 1


class Cluster:
    """A store, a webhook configuration with one entry, and replicas."""

    def __init__(self, life: Lifetimes, age: timedelta = timedelta(0)) -> None:
        self.life = life
        self.first = Authority().renew(NAMES, life, datetime.now(UTC) - age)
        self.store = Memory(self.first.contents)
        self.bundle: bytes | None = None

    def registered(self) -> RegisteredBundles:
        return [] if self.bundle is None else [(HOST, self.bundle)]

    def replica(
        self,
        *,
        writes: bool = False,
        sync_interval: timedelta = ALWAYS,
        **clocks: Callable[[], Any],
    ) -> DynamicSource:
        return DynamicSource(
            self.store, NAMES, self.life, lambda: writes, self.registered, sync_interval, **clocks
        )

    def replace(self) -> Authority:
        """Replace all stored contents by another CA and a leaf of that CA."""
        other = Authority().renew(NAMES, self.life, datetime.now(UTC))
        self.store.contents = other.contents
        return other


def served(replica: DynamicSource) -> x509.Certificate:
    """The certificate that a client gets in a handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    client = unverified.wrap_bio(to_client, to_server)
    server = replica.context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"")


def leaf(authority: Authority) -> x509.Certificate:
    assert authority.leaf
    return authority.leaf.certificate


async def test_every_replica_serves_the_leaf_that_the_writer_stored() -> None:
    cluster = Cluster(LIFE)
    cluster.store.contents = {}
    writer, reader = cluster.replica(writes=True), cluster.replica()
    assert not writer.ready
    assert writer.problem == "Secret podsettle/podsettle-tls has no certificate yet"
    assert writer.bundle == b""
    assert verify_error(writer.context, HOST, b"")
    await reader.sync()
    assert not reader.ready
    await writer.sync()
    assert writer.ready
    await reader.sync()
    for replica in (writer, reader):
        assert (replica.ready, replica.problem) == (True, "")
        for name in NAMES:
            assert verify_error(replica.context, name, writer.bundle) == ""
    assert served(reader) == served(writer)
    assert reader.bundle == writer.bundle


async def test_handshakes_succeed_before_the_store_was_read() -> None:
    said = verify_error(Cluster(LIFE).replica().context, HOST, Cluster(LIFE).first.bundle)
    assert "certificate" in said


@pytest.mark.parametrize("host", ["", "a..b", f"{'a' * 64}.b", ".b"])
def test_text_that_is_no_name_of_a_host_is_an_error_of_trust(host: str) -> None:
    cluster = Cluster(LIFE)
    said = verify_error(cluster.replica().context, host, cluster.first.bundle)
    assert f"{host!r} is not the name of a host" in said


async def test_the_store_is_not_written_while_nothing_is_due() -> None:
    cluster = Cluster(LIFE)
    writer = cluster.replica(writes=True)
    await writer.sync()
    assert served(writer) == leaf(cluster.first)
    assert cluster.store.writes == 0


async def test_a_leaf_that_is_due_is_renewed_and_served() -> None:
    cluster = Cluster(LIFE, age=25 * DAY)
    cluster.bundle = cluster.first.bundle
    reader, writer = cluster.replica(), cluster.replica(writes=True)
    await reader.sync()
    assert served(reader) == leaf(cluster.first)
    assert "was not renewed" in reader.problem
    assert reader.ready
    for replica in (writer, reader):
        await replica.sync()
        assert served(replica) != leaf(cluster.first)
        assert replica.fingerprint == fingerprint(served(replica))
        assert replica.expires > datetime.now(UTC) + 29 * DAY
        assert replica.problem == ""


async def test_an_untrusted_new_leaf_is_not_served_while_the_old_one_is_trusted() -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    passed = 0.0
    reader = cluster.replica(monotonic=lambda: passed)
    await reader.sync()
    other = cluster.replace()
    await reader.sync()
    assert served(reader) == leaf(cluster.first)
    assert (
        "not served until it is trusted: podsettle.podsettle.svc: unable to get" in reader.problem
    )
    assert reader.ready
    # This API server trusts it now. Other API servers get the time to receive the bundle.
    cluster.bundle = other.bundle + cluster.first.bundle
    await reader.sync()
    passed += LIFE.propagation.total_seconds() - 1
    await reader.sync()
    assert served(reader) == leaf(cluster.first)
    passed += 1
    await reader.sync()
    assert served(reader) == leaf(other)
    assert verify_error(reader.context, HOST, other.bundle) == ""


async def test_an_untrusted_leaf_is_replaced_at_once() -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    reader = cluster.replica(sync_interval=SYNC_INTERVAL)
    await reader.sync()
    other = cluster.replace()
    cluster.bundle = other.bundle
    # Although a sync is not due yet.
    await reader.sync()
    assert served(reader) == leaf(other)


async def test_a_leaf_that_expires_by_a_wrong_clock_is_served_until_the_new_one_is_trusted() -> (
    None
):
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    offset = timedelta(0)
    writer = cluster.replica(writes=True, now=lambda: datetime.now(UTC) + offset)
    await writer.sync()
    offset = 366 * DAY
    await writer.sync()
    assert served(writer) == leaf(cluster.first)
    # The writer registers both CAs.
    cluster.bundle = writer.bundle
    await writer.sync()
    assert served(writer) == leaf(Authority.read(cluster.store.contents or {}))
    assert verify_error(writer.context, HOST, cluster.bundle) == ""


async def test_the_leaf_stays_trusted_after_the_store_was_emptied() -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    passed = 0.0
    writer = cluster.replica(writes=True, monotonic=lambda: passed)
    reader = cluster.replica(monotonic=lambda: passed)
    await writer.sync()
    await reader.sync()
    cluster.store.contents = {}
    old = cluster.first.cas[0]
    while cluster.first.bundle in writer.bundle:
        for replica in (writer, reader):
            await replica.sync()
            assert verify_error(replica.context, HOST, cluster.bundle) == ""
        # As the leader registers it, a moment later.
        cluster.bundle = writer.bundle
        for replica in (writer, reader):
            assert verify_error(replica.context, HOST, cluster.bundle) == ""
        passed += LIFE.propagation.total_seconds() / 10
        assert passed < LIFE.ca.total_seconds()
    stored = Authority.read(cluster.store.contents or {})
    assert old not in stored.cas
    assert served(reader) == served(writer) == leaf(stored)


async def test_a_new_leaf_waits_until_every_webhook_entry_trusts_it() -> None:
    cluster = Cluster(LIFE)
    other = Authority().renew(NAMES, LIFE, datetime.now(UTC))
    bundles = [cluster.first.bundle, cluster.first.bundle]
    reader = DynamicSource(
        cluster.store,
        NAMES,
        LIFE,
        lambda: False,
        lambda: [(HOST, bundle) for bundle in bundles],
        ALWAYS,
    )
    await reader.sync()
    cluster.store.contents = other.contents
    bundles[1] = other.bundle + cluster.first.bundle
    await reader.sync()
    assert served(reader) == leaf(cluster.first)
    # Half of the calls fail with the old leaf, and none with the new one.
    bundles[0] = other.bundle
    await reader.sync()
    assert served(reader) == leaf(other)


@pytest.mark.parametrize("trusted", ["none", "old", "new", "both"])
async def test_equal_entries_of_the_configuration_cost_no_more_handshakes_than_one(
    trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(LIFE)
    other = Authority().renew(NAMES, LIFE, datetime.now(UTC))
    bundles = {"none": b"", "old": cluster.first.bundle, "new": other.bundle}
    bundle = bundles.get(trusted, cluster.first.bundle + other.bundle)
    handshakes: list[str] = []

    def verify(context: ssl.SSLContext, host: str, bundle: bytes) -> str:
        handshakes.append(host)
        return verify_error(context, host, bundle)

    monkeypatch.setattr("webhook.tls.dynamic_source.verify_error", verify)

    async def handshakes_of_syncs(webhooks: int) -> int:
        handshakes.clear()
        cluster.store.contents = cluster.first.contents
        registered = [(HOST, bundle)] * webhooks
        reader = DynamicSource(
            cluster.store, NAMES, LIFE, lambda: False, lambda: registered, ALWAYS
        )
        await reader.sync()
        cluster.store.contents = other.contents
        await reader.sync()
        await reader.sync()
        return len(handshakes)

    assert await handshakes_of_syncs(20) == await handshakes_of_syncs(1) > 0


@pytest.mark.parametrize(
    "contents",
    [
        {},
        {"tls.key": b"rubbish"},
        {"tls.crt": b"rubbish"},
        {"ca.crt": b"rubbish"},
        {"tls.crt": b"", "tls.key": b"", "ca.crt": b"", "ca.key": b""},
    ],
)
async def test_a_broken_store_changes_neither_leaf_nor_bundle(contents: dict[str, bytes]) -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    reader = cluster.replica()
    await reader.sync()
    cluster.store.contents = {**cluster.first.contents, **contents} if contents else {}
    await reader.sync()
    assert served(reader) == leaf(cluster.first)
    assert verify_error(reader.context, HOST, cluster.bundle) == ""
    assert cluster.first.bundle in reader.bundle


async def test_a_leaf_of_a_ca_that_is_not_stored_is_not_served() -> None:
    cluster = Cluster(LIFE)
    reader = cluster.replica()
    await reader.sync()
    other = Authority().renew(NAMES, LIFE, datetime.now(UTC)).contents
    pair = {key: other[key] for key in ("tls.crt", "tls.key")}
    cluster.store.contents = {**cluster.first.contents, **pair}
    await reader.sync()
    assert served(reader) == leaf(cluster.first)


async def test_cas_stay_registered_while_the_store_is_empty() -> None:
    cluster = Cluster(LIFE)
    passed = timedelta(0)
    start = time.monotonic()
    reader = cluster.replica(monotonic=lambda: start + passed.total_seconds())
    await reader.sync()
    cluster.store.contents = {}
    passed = 365 * DAY
    await reader.sync()
    assert reader.bundle == cluster.first.bundle


async def test_a_missing_store_is_reported_and_the_leaf_stays_served() -> None:
    cluster = Cluster(LIFE)
    writer = cluster.replica(writes=True)
    await writer.sync()
    cluster.store.contents = None
    for _ in range(3):
        await writer.sync()
    assert writer.ready
    assert "Secret podsettle/podsettle-tls does not exist; `helm upgrade`" in writer.problem
    assert writer.bundle == cluster.first.bundle


async def test_a_stored_leaf_is_served_although_writes_fail() -> None:
    cluster = Cluster(LIFE, age=25 * DAY)
    cluster.store.read_only = "403: forbidden"
    writer = cluster.replica(writes=True)
    await writer.sync()
    assert served(writer) == leaf(cluster.first)
    assert "403: forbidden" in writer.problem
    cluster.store.read_only = ""
    await writer.sync()
    assert writer.problem == ""
    assert served(writer) != leaf(cluster.first)


async def test_a_write_conflict_keeps_the_contents_of_the_other_writer() -> None:
    cluster = Cluster(LIFE)
    cluster.store.contents = {}
    late = cluster.replica(writes=True)
    read = cluster.store.read

    async def overtaken() -> Mapping[str, bytes] | None:
        contents = await read()
        cluster.store.contents = cluster.first.contents
        return contents

    cluster.store.read = overtaken  # type: ignore[method-assign]
    await late.sync()
    assert "modified" in late.problem
    await late.sync()
    assert served(late) == leaf(cluster.first)


async def test_the_leaf_stays_served_while_the_store_is_unreachable() -> None:
    cluster = Cluster(LIFE)
    reader = cluster.replica()
    await reader.sync()
    cluster.store.failure = "no answer"
    await reader.sync()
    assert (reader.ready, reader.problem) == (True, "no answer")


async def test_an_expired_leaf_is_not_ready() -> None:
    cluster = Cluster(LIFE)
    offset = LIFE.leaf - timedelta(minutes=1)
    reader = cluster.replica(now=lambda: datetime.now(UTC) + offset)
    await reader.sync()
    assert reader.ready
    offset += timedelta(minutes=1)
    assert not reader.ready
    assert "the certificate expired at" in reader.problem
    await cluster.replica(writes=True, now=lambda: datetime.now(UTC) + offset).sync()
    await reader.sync()
    assert reader.ready


async def test_sync_reads_the_store_only_when_due_or_after_an_error() -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    offset = timedelta(0)
    reader = cluster.replica(sync_interval=SYNC_INTERVAL, now=lambda: datetime.now(UTC) + offset)
    await reader.sync()
    for moved in (timedelta(hours=1), -timedelta(hours=1)):
        cluster.store.failure = "no answer"
        await reader.sync()
        assert reader.problem == ""
        offset += moved
        await reader.sync()
        assert reader.problem == "no answer"
        cluster.store.failure = ""
        offset += moved
        await reader.sync()
        assert reader.problem == ""


async def test_a_new_writer_reads_the_store_before_it_registers_a_bundle() -> None:
    cluster = Cluster(LIFE)
    cluster.bundle = cluster.first.bundle
    writes = False
    heir = DynamicSource(cluster.store, NAMES, LIFE, lambda: writes, cluster.registered)
    await heir.sync()
    other = cluster.replace()
    cluster.bundle = other.bundle + cluster.first.bundle
    writes = True
    assert heir.bundle == b""
    await heir.sync()
    assert heir.bundle == other.bundle + cluster.first.bundle
    writes = False
    await heir.sync()
    assert heir.bundle == other.bundle + cluster.first.bundle


async def test_a_running_source_syncs_again_after_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(LIFE)
    cluster.store.contents = {}
    defects = 1

    def registered() -> RegisteredBundles:
        nonlocal defects
        defects -= 1
        if defects >= 0:
            raise RuntimeError("a defect")
        return cluster.registered()

    writer = DynamicSource(cluster.store, NAMES, LIFE, lambda: True, registered)
    async with writer.running(), asyncio.timeout(TIMEOUT_SECONDS):
        while cluster.store.writes < 1:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)
    assert "a defect" in caplog.text
    assert len(asyncio.all_tasks()) == 1
