"""The certificate source that issues podsettle's certificates and keeps them in a store.

The store is a Secret with a CA and a leaf. All replicas read it. One replica writes it. With these
three rules, no handshake fails during a rotation:

- A replica serves a new leaf only if every entry of the webhook configuration that trusts the
  current leaf also trusts the new one.
- A CA that disappears from the store, for example because the Secret was emptied, stays registered
  until no replica can serve a leaf of that CA any more.
- If a replica cannot read the store, it continues to serve the leaf that it read last.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from webhook.tasks import supervise
from webhook.tls.authority import (
    Authority,
    Lifetimes,
    fingerprint,
    fingerprints,
    has_issuer,
    is_due,
    pem,
)
from webhook.tls.context import load_key_pair, server_context
from webhook.tls.issuing import KeyPair, issue_ca, issue_leaf
from webhook.tls.served_certificate_check import trust_errors, verify_error

log = logging.getLogger(__name__)

# Each sync sends a request to the API server. If leaves are valid for less than 10 minutes,
# `DynamicSource` syncs more often: 20 times in the lifetime of a leaf.
SYNC_INTERVAL = timedelta(seconds=30)
# The time between two checks whether a sync is due. A check needs no request.
POLL_INTERVAL = timedelta(seconds=1)

# For each entry of the webhook configuration: the host name that the API server calls, and the CA
# bundle (PEM). Entries may be equal.
RegisteredBundles = Iterable[tuple[str, bytes]]


class StoreError(Exception):
    """The store cannot be read or written at the moment. The message gives the reason."""


class Store(Protocol):
    """Storage that all replicas share: file names and contents.

    The contents are always read together and replaced together.
    """

    @property
    def title(self) -> str:
        """The kind and name of the store, which messages contain."""

    async def read(self) -> Mapping[str, bytes] | None:
        """Return the stored contents, or None if the store does not exist. Raises StoreError."""

    async def write(self, contents: Mapping[str, bytes]) -> None:
        """Replace the contents that were read last.

        Raises StoreError if this fails or if another client has written since that read.
        """


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """The settings for certificates that podsettle issues itself.

    `service` is the name of the Service that the API server calls. `secret` is the name of the
    Secret that stores the certificates.
    """

    service: str
    secret: str
    lifetimes: Lifetimes


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service. The API server uses the first one.

    Source: `pkg/util/webhook/client.go` in kubernetes/apiserver.
    """
    name = f"{service}.{namespace}"
    return f"{name}.svc", f"{name}.svc.cluster.local", name


class DynamicSource:
    """A source that serves the stored leaf and renews the stored certificates in time.

    `may_write` returns whether this replica is the writer. `registered` returns the CA bundles of
    the webhook configuration at its last read, and an empty sequence before the first read. The
    store is read every `sync_interval`, or more often if leaves are valid for a short time.
    `now` returns the wall-clock time, which certificates use. `monotonic` returns seconds of a
    clock that is never set back.
    """

    def __init__(
        self,
        store: Store,
        names: tuple[str, ...],
        lifetimes: Lifetimes,
        may_write: Callable[[], bool],
        registered: Callable[[], RegisteredBundles],
        sync_interval: timedelta = SYNC_INTERVAL,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.context = server_context()
        self._store = store
        self._names = names
        self._lifetimes = lifetimes
        self._may_write = may_write
        self._read_registered = registered
        self._interval = min(sync_interval, lifetimes.leaf / 20)
        self._now = now
        self._monotonic = monotonic
        self._synced_at: datetime | None = None
        # Whether this replica was the writer at its last read of the store.
        self._was_writer = False
        self._stored = Authority()
        self._served: KeyPair | None = None
        self._last_trust_check: tuple[tuple[tuple[str, bytes], ...], KeyPair | None] | None = None
        self._distrusted = False
        self._store_error = ""
        self._trust_problem = ""
        # For each CA (PEM), the monotonic time at which it was last read from the store.
        self._last_in_store: dict[bytes, float] = {}
        # For each CA (fingerprint), the monotonic time since which all entries of the webhook
        # configuration contain it.
        self._registered_since: dict[str, float] = {}
        # The server needs a certificate to answer probes before the store is read. Probes do not
        # verify certificates, and no client trusts this one.
        ca = issue_ca("podsettle has no certificate yet", lifetimes.ca)
        self._load(issue_leaf(ca, names, lifetimes.leaf))

    @property
    def ready(self) -> bool:
        """Whether a leaf from the store is served and has not expired."""
        return self._served is not None and self._now() < self.expires

    @property
    def problem(self) -> str:
        """The errors of the store and of the served leaf, joined by `; `, or an empty text."""
        return "; ".join(
            filter(None, (self._store_error, self._trust_problem, self._leaf_problem()))
        )

    @property
    def bundle(self) -> bytes:
        """The CAs (PEM) that the API server has to trust, newest first. Empty while unknown."""
        if self._may_write() and not self._was_writer:
            # The previous writer may have stored a CA that this replica has not read yet.
            return b""
        return b"".join(self._last_in_store)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Renew and reload the certificate while the block runs."""
        return supervise(self._run)

    async def _run(self) -> None:
        while True:
            await self.sync()
            # The event loop's clock stops while the machine is suspended. One long sleep until the
            # renewal would therefore end too late. Short sleeps end at most one second late.
            await asyncio.sleep(min(POLL_INTERVAL, self._interval).total_seconds())

    async def sync(self) -> None:
        """Read the store if necessary, then serve its leaf unless clients may not trust it yet.

        The store is read if the interval has passed, if this replica has become or is no longer
        the writer, or if the served leaf is not usable.
        """
        self._record_registered_cas()
        now = self._now()
        # The absolute value, because the clock may be set back.
        overdue = self._synced_at is None or abs(now - self._synced_at) >= self._interval
        role_changed = self._may_write() != self._was_writer
        if overdue or role_changed or not self.ready or self._is_distrusted(ignore_cache=overdue):
            self._synced_at = now
            try:
                await self._read_and_renew()
                self._store_error = ""
            except StoreError as error:
                self._store_error = str(error)
        self._serve_stored_leaf()

    def _is_distrusted(self, *, ignore_cache: bool) -> bool:
        """Return whether an entry of the webhook configuration does not trust the served leaf.

        The result is cached, because each check does a handshake in memory, which blocks the event
        loop for a millisecond or more. `ignore_cache` ignores the cached result.
        """
        inputs = self._registered(), self._served
        if ignore_cache or inputs != self._last_trust_check:
            self._last_trust_check = inputs
            self._distrusted = bool(trust_errors(self.context, inputs[0]))
        return self._distrusted

    async def _read_and_renew(self) -> None:
        """Read the store. Renew the certificates if they are due and this replica is the writer."""
        is_writer = self._may_write()
        contents = await self._store.read()
        self._was_writer = is_writer
        if contents is None:
            raise StoreError(
                f"{self._store.title} does not exist; `helm upgrade`, or a sync of the tool that "
                "deploys the chart, creates it again"
            )
        stored = Authority.read(contents)
        self._set_stored(stored)
        if not self._may_write():
            return
        # The time after the read, because its response can correct the clock.
        renewed = stored.renew(self._names, self._lifetimes, self._now(), self._propagated_cas())
        if renewed is not stored:
            await self._store.write(renewed.contents)
            log.info("%s: %s", self._store.title, _describe_changes(stored, renewed))
            self._set_stored(renewed)

    def _set_stored(self, stored: Authority) -> None:
        """Store the certificates that were read or written. Record the time for each CA."""
        self._stored = stored
        if stored.cas:
            now = self._monotonic()
            # A replica changes to a leaf of a new CA within one propagation time and one sync.
            # The factor 3 leaves a reserve.
            keep_seconds = 3 * self._lifetimes.propagation.total_seconds()
            kept_cas = {
                ca: last for ca, last in self._last_in_store.items() if now - last < keep_seconds
            }
            self._last_in_store = {pem(ca): now for ca in stored.cas}
            self._last_in_store |= {
                ca: last for ca, last in kept_cas.items() if ca not in self._last_in_store
            }

    def _serve_stored_leaf(self) -> None:
        """Serve the stored leaf, unless it is served already or `_may_serve` forbids it."""
        self._trust_problem = ""
        leaf, served = self._stored.leaf, self._served
        if leaf is None or (served and served.certificate == leaf.certificate):
            return
        if not self._may_serve(leaf):
            return
        self._load(leaf)
        self._served = leaf
        log.info("serving a certificate that is valid until %s", self.expires)

    def _may_serve(self, leaf: KeyPair) -> bool:
        """Return whether a leaf is valid, and trusted by all clients that trust the served one.

        Each entry of the webhook configuration that trusts the served leaf must also trust this
        one. If all entries trust the served leaf, the API servers must also have had the time to
        receive the CA of this leaf, unless the served leaf is due for renewal.
        """
        candidate = server_context()
        try:
            load_key_pair(candidate, leaf)
        except ssl.SSLError:
            return False
        if verify_error(candidate, self._names[0], self._stored.bundle):
            return False
        entries = self._registered()
        trusting = [entry for entry in entries if self._may_trust_served(*entry)]
        if errors := trust_errors(candidate, trusting):
            self._trust_problem = (
                f"the new certificate is not served until it is trusted: {'; '.join(errors)}"
            )
            return False
        if not self._served or not entries or len(trusting) < len(entries):
            return True
        # The webhook configuration contains the new CA, but some API servers may not have received
        # it yet.
        return (
            is_due(self._served.certificate, self._lifetimes.leaf, self._now())
            or self._stored.issuer_fingerprint in self._propagated_cas()
        )

    def _may_trust_served(self, host: str, bundle: bytes) -> bool:
        """Return whether an API server with this entry may trust the served leaf.

        The clock of this replica may be wrong, so a leaf that has expired by it counts as trusted.
        """
        if self._served is not None and self._now() >= self.expires:
            return has_issuer(bundle, self._served.certificate)
        return not verify_error(self.context, host, bundle)

    def _load(self, pair: KeyPair) -> None:
        """Let the context serve a certificate from the next handshake on."""
        load_key_pair(self.context, pair)
        self.expires = pair.certificate.not_valid_after_utc
        self.fingerprint = fingerprint(pair.certificate)

    def _record_registered_cas(self) -> None:
        """Record since when all entries of the webhook configuration contain each CA."""
        fingerprint_sets = [fingerprints(bundle) for _, bundle in self._registered()]
        now = self._monotonic()
        self._registered_since = {
            ca: self._registered_since.get(ca, now)
            for ca in (frozenset.intersection(*fingerprint_sets) if fingerprint_sets else ())
        }

    def _propagated_cas(self) -> frozenset[str]:
        """Return the fingerprints of the CAs that every API server should have received by now."""
        latest = self._monotonic() - self._lifetimes.propagation.total_seconds()
        return frozenset(ca for ca, since in self._registered_since.items() if since <= latest)

    def _leaf_problem(self) -> str:
        """Return the error of the served leaf, or an empty text."""
        if self._served is None:
            return "" if self._store_error else f"{self._store.title} has no certificate yet"
        remaining = self.expires - self._now()
        if remaining <= timedelta(0):
            return f"the certificate expired at {self.expires}"
        if remaining < self._lifetimes.leaf / 4:
            return f"the certificate expires at {self.expires} and was not renewed"
        return ""

    def _registered(self) -> tuple[tuple[str, bytes], ...]:
        """Return the distinct entries. Each costs handshakes, and usually all are equal."""
        return tuple(dict.fromkeys(self._read_registered()))


def _describe_changes(old: Authority, new: Authority) -> str:
    """Return a message that lists the changes between two authorities."""
    changes = [f"new CA {fingerprint(ca)[:16]}" for ca in new.cas if ca not in old.cas]
    if new.leaf and new.leaf != old.leaf:
        changes.append(f"new leaf, valid until {new.leaf.certificate.not_valid_after_utc}")
    dropped = [f"removed CA {fingerprint(ca)[:16]}" for ca in old.cas if ca not in new.cas]
    return ", ".join(changes + dropped) or "removed private keys without a CA"
