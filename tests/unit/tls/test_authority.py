"""The certificates to store next, for every state of the store and every time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from webhook.tls.authority import Authority, Lifetimes, fingerprint, fingerprints
from webhook.tls.issuing import KeyPair, issue_ca, issue_leaf

NOW = datetime(2026, 11, 21, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LIFE = Lifetimes(leaf=30 * DAY, ca=365 * DAY)
NAMES = ("podsettle.podsettle.svc", "podsettle.podsettle")
FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def made(now: datetime = NOW, life: Lifetimes = LIFE) -> Authority:
    return Authority().renew(NAMES, life, now)


def renewed(
    authority: Authority, now: datetime, trusted: tuple[x509.Certificate, ...] = ()
) -> Authority:
    return authority.renew(NAMES, LIFE, now, frozenset(map(fingerprint, trusted)))


def leaf(authority: Authority) -> x509.Certificate:
    assert authority.leaf
    return authority.leaf.certificate


def verify(
    certificate: x509.Certificate, trusts: tuple[x509.Certificate, ...], at: datetime
) -> None:
    builder = PolicyBuilder().store(Store(list(trusts))).time(at)
    for name in NAMES:
        builder.build_server_verifier(x509.DNSName(name)).verify(certificate, [])


def test_an_empty_store_gets_a_ca_and_a_leaf() -> None:
    first = made()
    assert set(first.contents) == set(FILES)
    verify(leaf(first), first.cas, NOW)
    assert leaf(first).not_valid_after_utc == NOW + LIFE.leaf
    assert first.cas[0].not_valid_after_utc == NOW + LIFE.ca


def test_a_leaf_is_renewed_after_two_thirds_of_its_life_by_the_same_ca() -> None:
    first = made()
    assert renewed(first, NOW + 20 * DAY - HOUR) is first
    second = renewed(first, NOW + 20 * DAY)
    assert second.cas == first.cas
    assert leaf(second).not_valid_after_utc == NOW + 50 * DAY
    assert leaf(second).public_key() != leaf(first).public_key()


def test_a_new_ca_signs_only_once_it_is_trusted() -> None:
    first = renewed(made(), NOW + 240 * DAY)
    due = NOW + 244 * DAY
    second = renewed(first, due, first.cas)
    assert len(second.cas) == 2
    assert second.cas[1] == first.cas[0]
    assert leaf(second) == leaf(first)
    later = due + 20 * DAY
    verify(leaf(renewed(second, later, first.cas)), first.cas, later)
    verify(leaf(renewed(second, later)), first.cas, later)
    verify(leaf(renewed(second, later, second.cas)), second.cas[:1], later)


def test_an_old_ca_and_its_key_are_kept_until_it_expires() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    assert renewed(second, NOW + 365 * DAY - HOUR).cas == second.cas
    third = renewed(second, NOW + 365 * DAY)
    assert third.cas == second.cas[:1]
    assert third.keys == second.keys[:1]


def test_a_ca_that_would_expire_before_its_leaf_never_signs() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    late = NOW + 340 * DAY
    verify(leaf(renewed(second, late, second.cas[1:])), second.cas[:1], late)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\n!\n"])
@pytest.mark.parametrize("file", FILES)
def test_a_lost_file_is_replaced_and_the_others_are_kept(file: str, content: bytes) -> None:
    first = made()
    broken = Authority.read({**first.contents, file: content})
    mended = renewed(broken, NOW)
    verify(leaf(mended), mended.cas, NOW)
    if file != "ca.crt":
        assert first.cas[0] in mended.cas
    if file == "ca.key":
        assert leaf(mended) == leaf(first)
    if file in ("tls.crt", "tls.key"):
        assert mended.cas == first.cas
        assert leaf(mended) != leaf(first)


def test_a_key_that_does_not_match_its_leaf_causes_a_new_leaf() -> None:
    first, other = made(), made()
    broken = Authority.read({**first.contents, "tls.key": other.contents["tls.key"]})
    assert broken.leaf is None
    stolen = Authority.read({**first.contents, "ca.key": other.contents["ca.key"]})
    mended = renewed(stolen, NOW)
    assert set(mended.cas) > set(first.cas)
    assert len(mended.keys) == 1


def test_a_broken_ca_in_the_bundle_does_not_remove_the_others() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    text = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n" + second.bundle
    assert Authority.read({**second.contents, "ca.crt": text}).cas == second.cas


def test_a_leaf_stored_as_ca_is_not_used_as_ca() -> None:
    first = made()
    assert Authority.read({"ca.crt": first.contents["tls.crt"]}).cas == ()


def test_a_leaf_for_other_names_is_replaced() -> None:
    first = made()
    other = first.renew(("other.podsettle.svc", "other.podsettle"), LIFE, NOW)
    assert other.cas == first.cas
    with pytest.raises(VerificationError):
        verify(leaf(other), other.cas, NOW)


@pytest.mark.parametrize("life", [Lifetimes(10 * DAY, 365 * DAY), Lifetimes(30 * DAY, 300 * DAY)])
def test_shorter_lifetimes_apply_at_once(life: Lifetimes) -> None:
    first = made()
    shorter = first.renew(NAMES, life, NOW)
    assert leaf(shorter).not_valid_after_utc == NOW + life.leaf or len(shorter.cas) == 2
    assert shorter.renew(NAMES, life, NOW) is shorter


def test_a_leaf_issued_by_a_clock_that_is_ahead_is_valid_now() -> None:
    first = made()
    ahead = renewed(first, NOW + 60 * DAY)
    verify(leaf(ahead), first.cas, NOW)
    # The clock is right again: no certificate from the future stays in use.
    back = renewed(ahead, NOW)
    assert leaf(back).not_valid_after_utc == NOW + LIFE.leaf


def test_a_ca_issued_by_a_clock_that_is_a_year_ahead_is_valid_now() -> None:
    ahead = renewed(made(), NOW + 366 * DAY)
    verify(leaf(ahead), ahead.cas, NOW)
    # The clock is right again: the CA of the future signs nothing more.
    back = renewed(ahead, NOW)
    verify(leaf(back), back.cas[:1], NOW)
    assert leaf(back).not_valid_after_utc == NOW + LIFE.leaf


@pytest.mark.parametrize(
    ("leaf_life", "ca_life"), [(30 * DAY, 119 * DAY), (timedelta(seconds=2), DAY), (DAY, -DAY)]
)
def test_lifetimes_that_are_too_short_are_refused(leaf_life: timedelta, ca_life: timedelta) -> None:
    with pytest.raises(ValueError, match="four times"):
        Lifetimes(leaf_life, ca_life)


def test_a_leaf_can_have_a_name_longer_than_a_common_name() -> None:
    name = f"{'s' * 63}.{'n' * 63}.svc"
    authority = Authority().renew((name,), LIFE, NOW)
    builder = PolicyBuilder().store(Store(list(authority.cas))).time(NOW)
    builder.build_server_verifier(x509.DNSName(name)).verify(leaf(authority), [])


def test_fingerprint_equals_that_of_openssl() -> None:
    first = made()
    assert fingerprints(first.bundle) == {fingerprint(first.cas[0])}
    assert len(fingerprint(first.cas[0])) == 64
    assert fingerprints(b"rubbish") == frozenset()


GOOD = made().contents
OLD = renewed(made(NOW - 244 * DAY), NOW).contents
contents = st.dictionaries(
    st.sampled_from(FILES),
    st.one_of(
        st.binary(max_size=200),
        st.sampled_from([*GOOD.values(), *OLD.values()]),
        # Valid contents with one changed byte.
        st.builds(
            lambda text, at, byte: text[: at % len(text)] + byte + text[at % len(text) + 1 :],
            st.sampled_from([*GOOD.values(), *OLD.values()]),
            st.integers(0, 2000),
            st.binary(min_size=1, max_size=1),
        ),
    ),
)


@given(contents, st.integers(-500, 500), st.booleans())
@examples(300)
def test_any_stored_contents_give_a_valid_ca_and_leaf(
    stored: dict[str, bytes], days: int, trust: bool
) -> None:
    now = NOW + days * DAY
    before = Authority.read(stored)
    trusted = before.cas if trust else ()
    after = renewed(before, now, trusted)
    verify(leaf(after), after.cas, now)
    assert now + LIFE.leaf / 3 < leaf(after).not_valid_after_utc
    assert not {ca for ca in before.cas if now < ca.not_valid_after_utc} - set(after.cas)
    read = Authority.read(after.contents)
    assert read.contents == after.contents
    assert renewed(read, now, trusted) is read


@dataclass
class Replica:
    """A replica that switches to stored leaves as `DynamicSource` does, with the test's clock."""

    served: KeyPair
    since: dict[str, datetime] = field(default_factory=dict)

    def note(self, registered: tuple[x509.Certificate, ...], now: datetime) -> None:
        self.since = {fingerprint(ca): self.since.get(fingerprint(ca), now) for ca in registered}

    def trusted(self, now: datetime) -> frozenset[str]:
        return frozenset(ca for ca, at in self.since.items() if now - at >= LIFE.propagation)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 8 * 24),  # hours until the next look
            st.booleans(),  # whether what is stored gets registered
            st.booleans(),  # whether the writer writes
        ),
        min_size=150,
        max_size=250,
    )
)
@examples(25)
def test_the_registered_bundle_always_verifies_the_served_leaf(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Simulate years. Registration and writer fail at times, but never for a week."""
    now = NOW
    stored = made()
    registered = stored.cas
    assert stored.leaf
    replica = Replica(stored.leaf)
    failed = timedelta(0)
    for hours, registers, writes in steps:
        now += timedelta(hours=hours)
        failed = timedelta(0) if registers and writes else failed + timedelta(hours=hours)
        if failed > 8 * DAY:
            registers, writes, failed = True, True, timedelta(0)
        replica.note(registered, now)
        if writes:
            stored = Authority.read(stored.renew(NAMES, LIFE, now, replica.trusted(now)).contents)
        if registers:
            registered = stored.cas
        candidate = stored.leaf
        assert candidate
        try:
            verify(candidate.certificate, registered, now)
        except VerificationError:
            pass
        else:
            replica.served = candidate
        verify(replica.served.certificate, registered, now)
    assert len(stored.cas) <= 3


def test_a_leaf_is_never_valid_before_its_ca_is() -> None:
    ca = issue_ca("test CA", DAY, NOW)
    later = issue_leaf(ca, ["localhost"], DAY, NOW + 12 * HOUR)
    assert later.certificate.not_valid_before_utc == ca.certificate.not_valid_before_utc
