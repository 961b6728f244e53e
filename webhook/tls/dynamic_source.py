"""The certificate source that issues podsettle's own certificates: a CA and a leaf in a store.

All replicas read the store, which is a Secret. One replica writes it. Three rules keep a rotation
from failing a handshake:

- A replica serves a new leaf only if every entry of the webhook configuration that trusts the
  current leaf also trusts the new one.
- A CA that disappears from the store, for example because the Secret was emptied, stays registered
  until no replica can serve a leaf of that CA any more.
- An unreadable store changes nothing: a replica goes on serving the leaf that it read last.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from webhook.tasks import supervise
from webhook.tls.authority import Authority, Lifetimes, fingerprint, fingerprints, pem
from webhook.tls.certificates import KeyPair, issue_ca, issue_leaf
from webhook.tls.context import load_key_pair, server_context
from webhook.tls.verify import verify_error

log = logging.getLogger(__name__)

# A sync is a request to the API server. A leaf with a short lifetime needs more of them:
# `DynamicSource` syncs at least 20 times in the lifetime of a leaf.
SYNC_INTERVAL = timedelta(seconds=30)
POLL_INTERVAL = timedelta(seconds=1)

# For each entry of the webhook configuration: the host name of the calls, and the CA bundle (PEM).
RegisteredBundles = Iterable[tuple[str, bytes]]


class StoreError(Exception):
    """The store cannot be read or written at the moment; the message gives the reason."""


class Store(Protocol):
    """Named contents that all replicas share, read as a whole and replaced as a whole."""

    @property
    def title(self) -> str:
        """The kind and name of the store, for messages."""

    async def read(self) -> Mapping[str, bytes] | None:
        """Return the stored contents, or None where the store does not exist. Raises StoreError."""

    async def write(self, contents: Mapping[str, bytes]) -> None:
        """Replace the contents that were read last.

        Raises StoreError, also if another client has written since that read.
        """


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """Where the replicas store podsettle's own certificates, and how long these are valid.

    `service` names the Service that the API server calls, `secret` the Secret of the certificates.
    """

    service: str
    secret: str
    lifetimes: Lifetimes


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service; the API server uses the first.

    Source: `pkg/util/webhook/client.go` in kubernetes/apiserver.
    """
    name = f"{service}.{namespace}"
    return f"{name}.svc", f"{name}.svc.cluster.local", name


class DynamicSource:
    """A source that serves the stored leaf and renews the stored certificates in time.

    `may_write` returns whether this replica is the writer. `registered` returns the CA bundles of
    the webhook configuration as it was last read, and nothing before the first read.
    The store is read every `sync_interval`, and more often where leaves are valid for a short time.
    `now` returns the time of day, which certificates use. `monotonic` returns seconds.
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
        self._registered = registered
        self._interval = min(sync_interval, lifetimes.leaf / 20)
        self._now = now
        self._monotonic = monotonic
        self._synced_at: datetime | None = None
        # Whether this replica was the writer at its last read of the store.
        self._was_writer = False
        self._stored = Authority()
        self._served: KeyPair | None = None
        self._last_check: tuple[tuple[tuple[str, bytes], ...], KeyPair | None] | None = None
        self._distrusted = False
        self._failure = ""
        self._waiting = ""
        # For each CA (PEM), when it was last in the store.
        self._in_store: dict[bytes, float] = {}
        # For each CA (fingerprint), since when all entries of the webhook configuration contain it.
        self._registered_since: dict[str, float] = {}
        self.expires = self._serve_placeholder()

    @property
    def ready(self) -> bool:
        """Whether a stored leaf is served and has not expired."""
        return self._served is not None and self._now() < self.expires

    @property
    def problem(self) -> str:
        """The errors of the store and of the served leaf, joined by `; `; empty for none."""
        return "; ".join(filter(None, (self._failure, self._waiting, self._problem())))

    @property
    def bundle(self) -> bytes:
        """The CAs (PEM) that the API server has to trust, newest first; empty while unknown."""
        if self._may_write() and not self._was_writer:
            # The previous writer may have stored a CA that this replica has not read yet.
            return b""
        return b"".join(self._in_store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Renew and reload the certificate while the block runs."""
        async with supervise(self._run):
            yield

    async def _run(self) -> None:
        while True:
            await self.sync()
            # Short sleeps: the event loop's clock stops while the machine is suspended, so one long
            # sleep until the renewal would end late by the time of the suspension.
            await asyncio.sleep(min(POLL_INTERVAL, self._interval).total_seconds())

    async def sync(self) -> None:
        """Read the store if that is due or a problem exists, then serve the best leaf."""
        self._record_trust()
        now = self._now()
        # abs: a clock may be set back.
        overdue = self._synced_at is None or abs(now - self._synced_at) >= self._interval
        changes_role = self._may_write() != self._was_writer
        if overdue or changes_role or not self.ready or self._is_distrusted(again=overdue):
            self._synced_at = now
            try:
                await self._read_and_renew(now)
                self._failure = ""
            except StoreError as error:
                if str(error) != self._failure:
                    log.warning("%s", error)
                self._failure = str(error)
        self._serve_stored_leaf()

    def _is_distrusted(self, *, again: bool) -> bool:
        """Return whether an entry of the webhook configuration does not trust the served leaf.

        The result is cached: a check is a handshake in memory, which blocks the event loop for a
        millisecond or more. `again` ignores the cache.
        """
        subject = tuple(self._registered()), self._served
        if again or subject != self._last_check:
            self._last_check = subject
            self._distrusted = bool(_trust_errors(self.context, subject[0]))
        return self._distrusted

    async def _read_and_renew(self, now: datetime) -> None:
        """Read the store. Renew the certificates if that is due and this replica is the writer."""
        writes = self._may_write()
        contents = await self._store.read()
        self._was_writer = writes
        if contents is None:
            raise StoreError(f"{self._store.title} does not exist; `helm upgrade` creates it again")
        stored = Authority.read(contents)
        self._set_stored(stored)
        if not self._may_write():
            return
        renewed = stored.renewed(self._names, self._lifetimes, now, self._trusted())
        if renewed is not stored:
            await self._store.write(renewed.contents)
            log.info("%s: %s", self._store.title, _difference(stored, renewed))
            self._set_stored(renewed)

    def _set_stored(self, stored: Authority) -> None:
        self._stored = stored
        if stored.cas:
            now = self._monotonic()
            # A replica switches to a leaf of a new CA within one propagation time and one sync.
            keep = 3 * self._lifetimes.propagation.total_seconds()
            gone = {ca: last for ca, last in self._in_store.items() if now - last < keep}
            self._in_store = {pem(ca): now for ca in stored.cas}
            self._in_store |= {ca: last for ca, last in gone.items() if ca not in self._in_store}

    def _serve_stored_leaf(self) -> None:
        """Serve the stored leaf, unless it is invalid or a client may not trust it yet.

        Each entry of the webhook configuration that trusts the served leaf must also trust the
        stored one. If all entries trust the served leaf, the API servers must also have had the
        time to receive the CA of the stored one, unless the served leaf is due for renewal.
        """
        self._waiting = ""
        leaf, served = self._stored.leaf, self._served
        if leaf is None or (served and served.certificate == leaf.certificate):
            return
        candidate = server_context()
        try:
            load_key_pair(candidate, leaf)
        except ssl.SSLError:
            return
        if verify_error(candidate, self._names[0], self._stored.bundle):
            return
        entries = tuple(self._registered())
        trusting = [entry for entry in entries if not verify_error(self.context, *entry)]
        if errors := _trust_errors(candidate, trusting):
            self._waiting = (
                f"a new certificate is not served until it is trusted: {'; '.join(errors)}"
            )
            return
        if served and entries and len(trusting) == len(entries):
            # The webhook configuration contains the new CA, but some API servers may not have
            # received it yet.
            due = self._lifetimes.is_due(served.certificate, self._now())
            if not due and self._stored.issuer not in self._trusted():
                return
        load_key_pair(self.context, leaf)
        self._served = leaf
        self.expires = leaf.certificate.not_valid_after_utc
        log.info("serving a certificate that is valid until %s", self.expires)

    def _serve_placeholder(self) -> datetime:
        """Serve a certificate that no client trusts, and return its expiry.

        With it the server can answer probes before the store is read. Probes do not verify
        certificates.
        """
        ca = issue_ca("podsettle has no certificate yet", self._lifetimes.ca)
        leaf = issue_leaf(ca, self._names, self._lifetimes.leaf)
        load_key_pair(self.context, leaf)
        return leaf.certificate.not_valid_after_utc

    def _record_trust(self) -> None:
        everywhere = [fingerprints(bundle) for _, bundle in self._registered()]
        now = self._monotonic()
        self._registered_since = {
            ca: self._registered_since.get(ca, now)
            for ca in (frozenset.intersection(*everywhere) if everywhere else ())
        }

    def _trusted(self) -> frozenset[str]:
        """Return the fingerprints of the CAs that every API server should have received by now."""
        before = self._monotonic() - self._lifetimes.propagation.total_seconds()
        return frozenset(ca for ca, since in self._registered_since.items() if since <= before)

    def _problem(self) -> str:
        if self._served is None:
            return "" if self._failure else f"{self._store.title} holds no certificate yet"
        left = self.expires - self._now()
        if left <= timedelta(0):
            return f"the certificate expired at {self.expires}"
        if left < self._lifetimes.leaf / 4:
            return f"the certificate expires at {self.expires} and was not renewed"
        return ""


def _trust_errors(context: ssl.SSLContext, registered: RegisteredBundles) -> list[str]:
    found = ((host, verify_error(context, host, bundle)) for host, bundle in registered)
    return [f"{host}: {text}" for host, text in found if text]


def _difference(old: Authority, new: Authority) -> str:
    made = [f"new CA {fingerprint(ca)[:16]}" for ca in new.cas if ca not in old.cas]
    if new.leaf and new.leaf != old.leaf:
        made.append(f"new leaf, valid until {new.leaf.certificate.not_valid_after_utc}")
    dropped = [f"dropped CA {fingerprint(ca)[:16]}" for ca in old.cas if ca not in new.cas]
    return ", ".join(made + dropped) or "dropped keys that fit no CA"
