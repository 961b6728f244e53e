"""Certificates of podsettle's own making: a CA and a leaf in a store that all replicas share.

One replica writes, all of them read. What keeps a rotation from ever failing a handshake:

- A replica goes over to a leaf only where that makes nothing worse: every entry of the webhook
  configuration that trusts the leaf served now has to trust the new one, too.
- A CA that leaves the store, because somebody emptied it, stays in what is registered until no
  replica can serve a leaf of it any more.
- Nothing that is wrong with the store takes a certificate away: what was read last is served on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from webhook.tasks import supervise
from webhook.tls.authority import Authority, Life, fingerprint, fingerprints, pem
from webhook.tls.certificates import KeyPair, issue_ca, issue_leaf
from webhook.tls.context import load, server_context
from webhook.tls.store import Store, StoreError
from webhook.tls.verify import objection

log = logging.getLogger(__name__)

_LOOK = timedelta(seconds=30)
_TICK = timedelta(seconds=1)

Registered = Iterable[tuple[str, bytes]]
"""Of each entry of the webhook configuration: the name it is called by, and its CA bundle."""


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """What a Service is called by; the API server uses the first (`pkg/util/webhook/client.go`)."""
    name = f"{service}.{namespace}"
    return f"{name}.svc", f"{name}.svc.cluster.local", name


class SelfManaged:
    """Serves the leaf that is in the store, and keeps the store's certificates fresh.

    `may_write` tells whether this replica is the one that writes; `registered` what the webhook
    configuration said when it was last seen: nothing where that is not known.
    """

    def __init__(
        self,
        store: Store,
        names: tuple[str, ...],
        life: Life,
        may_write: Callable[[], bool],
        registered: Callable[[], Registered],
    ) -> None:
        self.context = server_context()
        self._store = store
        self._names = names
        self._life = life
        self._may_write = may_write
        self._registered = registered
        self._interval = min(_LOOK, life.leaf / 20)
        self._looked: datetime | None = None
        self._was_writer = False
        """Whether this replica was the one that writes when it last read the store."""
        self._stored = Authority()
        self._served: KeyPair | None = None
        self._judged: tuple[tuple[tuple[str, bytes], ...], KeyPair | None] | None = None
        self._refused = False
        self._failure = ""
        self._waiting = ""
        # When each CA was last seen in the store, and since when each is registered everywhere.
        self._in_store: dict[bytes, float] = {}
        self._registered_since: dict[str, float] = {}
        self.expires = self._serve_throwaway()

    @property
    def ready(self) -> bool:
        """Whether a leaf of the store is served, and has not expired."""
        return self._served is not None and datetime.now(UTC) < self.expires

    @property
    def problem(self) -> str:
        """What is wrong with the store, or with the leaf that is served."""
        return "; ".join(filter(None, (self._failure, self._waiting, self._complaint())))

    @property
    def bundle(self) -> bytes:
        """The CAs that the API server has to trust, newest first; empty while none is known."""
        if self._may_write() and not self._was_writer:
            # The writer before may have stored a CA that this replica has not read yet.
            return b""
        return b"".join(self._in_store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at the clock, the store and the webhook configuration while the block runs."""
        async with supervise(self._run):
            yield

    async def _run(self) -> None:
        while True:
            await self.look()
            # Short sleeps: the event loop's clock stands still while the machine is suspended, so
            # one long sleep until the renewal would end too late by as much.
            await asyncio.sleep(min(_TICK, self._interval).total_seconds())

    async def look(self) -> None:
        """Look once: at the store, if it is time or something is wrong; then serve what is best."""
        self._note_registered()
        now = datetime.now(UTC)
        # In both directions, since a clock may be set back.
        overdue = self._looked is None or abs(now - self._looked) >= self._interval
        changes_role = self._may_write() != self._was_writer
        if overdue or changes_role or not self.ready or self._is_refused(judge_anew=overdue):
            self._looked = now
            try:
                await self._synchronize(now)
                self._failure = ""
            except StoreError as error:
                if str(error) != self._failure:
                    log.warning("%s", error)
                self._failure = str(error)
        self._serve_what_is_stored()

    def _is_refused(self, *, judge_anew: bool) -> bool:
        """Whether an entry of the webhook configuration does not trust what is served.

        A handshake takes a millisecond or more, in which no review is answered: not each second.
        """
        subject = tuple(self._registered()), self._served
        if judge_anew or subject != self._judged:
            self._judged = subject
            self._refused = bool(_objections(self.context, subject[0]))
        return self._refused

    async def _synchronize(self, now: datetime) -> None:
        """Read what is stored, and renew it where that is due and up to this replica."""
        writes = self._may_write()
        contents = await self._store.read()
        self._was_writer = writes
        if contents is None:
            raise StoreError(f"{self._store.title} does not exist; a helm upgrade makes it anew")
        stored = Authority.read(contents)
        self._take(stored)
        if not self._may_write():
            return
        renewed = stored.renewed(self._names, self._life, now, self._trusted())
        if renewed is not stored:
            await self._store.write(renewed.contents)
            log.info("%s: %s", self._store.title, _difference(stored, renewed))
            self._take(renewed)

    def _take(self, stored: Authority) -> None:
        self._stored = stored
        if stored.cas:
            now = time.monotonic()
            # A replica goes over to a leaf of a new CA within one propagation and a look.
            keep = 3 * self._life.propagation.total_seconds()
            gone = {ca: last for ca, last in self._in_store.items() if now - last < keep}
            self._in_store = {pem(ca): now for ca in stored.cas}
            self._in_store |= {ca: last for ca, last in gone.items() if ca not in self._in_store}

    def _serve_what_is_stored(self) -> None:
        """Go over to the stored leaf, unless the one served now is better."""
        self._waiting = ""
        leaf, served = self._stored.leaf, self._served
        if leaf is None or (served and served.certificate == leaf.certificate):
            return
        candidate = server_context()
        try:
            load(candidate, leaf)
        except ssl.SSLError:
            return
        if objection(candidate, self._names[0], self._stored.bundle):
            return
        entries = tuple(self._registered())
        trusting = [entry for entry in entries if not objection(self.context, *entry)]
        if lost := _objections(candidate, trusting):
            self._waiting = f"a new certificate waits until it is trusted: {'; '.join(lost)}"
            return
        if served and entries and len(trusting) == len(entries):
            # This API server trusts the new CA; another one may learn of it later.
            due = self._life.is_due(served.certificate, datetime.now(UTC))
            if not due and self._stored.issuer not in self._trusted():
                return
        load(self.context, leaf)
        self._served = leaf
        self.expires = leaf.certificate.not_valid_after_utc
        log.info("a certificate is served that is good until %s", self.expires)

    def _serve_throwaway(self) -> datetime:
        """Until the store has been read, so that the probes get an answer. Nobody trusts it."""
        ca = issue_ca("podsettle has no certificate yet", self._life.ca)
        leaf = issue_leaf(ca, self._names, self._life.leaf)
        load(self.context, leaf)
        return leaf.certificate.not_valid_after_utc

    def _note_registered(self) -> None:
        everywhere = [fingerprints(bundle) for _, bundle in self._registered()]
        now = time.monotonic()
        self._registered_since = {
            ca: self._registered_since.get(ca, now)
            for ca in (frozenset.intersection(*everywhere) if everywhere else ())
        }

    def _trusted(self) -> frozenset[str]:
        """The CAs that every API server should have learnt of by now."""
        before = time.monotonic() - self._life.propagation.total_seconds()
        return frozenset(ca for ca, since in self._registered_since.items() if since <= before)

    def _complaint(self) -> str:
        if self._served is None:
            return "" if self._failure else f"{self._store.title} holds no certificate yet"
        left = self.expires - datetime.now(UTC)
        if left <= timedelta(0):
            return f"the certificate expired at {self.expires}"
        if left < self._life.leaf / 4:
            return f"the certificate expires at {self.expires} and nobody has renewed it"
        return ""


def _objections(context: ssl.SSLContext, registered: Registered) -> list[str]:
    found = ((host, objection(context, host, bundle)) for host, bundle in registered)
    return [f"{host}: {text}" for host, text in found if text]


def _difference(old: Authority, new: Authority) -> str:
    made = [f"new CA {fingerprint(ca)[:16]}" for ca in new.cas if ca not in old.cas]
    if new.leaf and new.leaf != old.leaf:
        made.append(f"new leaf, good until {new.leaf.certificate.not_valid_after_utc}")
    dropped = [f"dropped CA {fingerprint(ca)[:16]}" for ca in old.cas if ca not in new.cas]
    return ", ".join(made + dropped) or "dropped keys that fit no CA"
