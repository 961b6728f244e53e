"""What to store next, for every state of the store and every time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.tls.authority import Authority, Life, fingerprint, fingerprints
from webhook.tls.certificates import KeyPair, issue_ca, issue_leaf

NOW = datetime(2026, 11, 21, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LIFE = Life(leaf=30 * DAY, ca=365 * DAY)
NAMES = ("podsettle.podsettle.svc", "podsettle.podsettle")
FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def made(now: datetime = NOW, life: Life = LIFE) -> Authority:
    return Authority().renewed(NAMES, life, now)


def renewed(
    authority: Authority, now: datetime, trusted: tuple[x509.Certificate, ...] = ()
) -> Authority:
    return authority.renewed(NAMES, LIFE, now, frozenset(map(fingerprint, trusted)))


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


def test_what_is_stored_reads_the_same() -> None:
    first = made()
    again = Authority.read(first.contents)
    assert again.contents == first.contents
    assert renewed(again, NOW) is again


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


def test_an_old_ca_is_trusted_until_it_expires_and_its_key_goes_with_it() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    assert renewed(second, NOW + 365 * DAY - HOUR).cas == second.cas
    third = renewed(second, NOW + 365 * DAY)
    assert third.cas == second.cas[:1]
    assert third.keys == second.keys[:1]


def test_a_ca_that_would_end_before_its_leaf_does_not_sign_even_if_no_other_is_trusted() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    late = NOW + 340 * DAY
    verify(leaf(renewed(second, late, second.cas[1:])), second.cas[:1], late)


def test_a_long_sleep_past_everything_starts_anew() -> None:
    late = NOW + 4000 * DAY
    after = renewed(made(), late)
    assert len(after.cas) == 1
    verify(leaf(after), after.cas, late)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\n!\n"])
@pytest.mark.parametrize("file", FILES)
def test_what_one_file_loses_is_made_and_the_rest_stays(file: str, content: bytes) -> None:
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


def test_a_key_of_another_certificate_is_as_good_as_none() -> None:
    first, other = made(), made()
    broken = Authority.read({**first.contents, "tls.key": other.contents["tls.key"]})
    assert broken.leaf is None
    stolen = Authority.read({**first.contents, "ca.key": other.contents["ca.key"]})
    mended = renewed(stolen, NOW)
    assert set(mended.cas) > set(first.cas)
    assert len(mended.keys) == 1


def test_one_broken_ca_takes_no_other_with_it() -> None:
    second = renewed(made(), NOW + 244 * DAY)
    text = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n" + second.bundle
    assert Authority.read({**second.contents, "ca.crt": text}).cas == second.cas


def test_a_leaf_of_a_foreign_ca_is_replaced() -> None:
    first, other = made(), made()
    mixed = replace(first, leaf=other.leaf)
    assert mixed.issuer == ""
    verify(leaf(renewed(mixed, NOW)), first.cas, NOW)


def test_a_leaf_in_place_of_a_ca_is_no_ca() -> None:
    first = made()
    assert Authority.read({"ca.crt": first.contents["tls.crt"]}).cas == ()


def test_a_leaf_for_other_names_is_replaced() -> None:
    first = made()
    other = first.renewed(("other.podsettle.svc", "other.podsettle"), LIFE, NOW)
    assert other.cas == first.cas
    with pytest.raises(VerificationError):
        verify(leaf(other), other.cas, NOW)


@pytest.mark.parametrize("life", [Life(10 * DAY, 365 * DAY), Life(30 * DAY, 300 * DAY)])
def test_shorter_lives_are_in_force_at_once(life: Life) -> None:
    first = made()
    shorter = first.renewed(NAMES, life, NOW)
    assert leaf(shorter).not_valid_after_utc == NOW + life.leaf or len(shorter.cas) == 2
    assert shorter.renewed(NAMES, life, NOW) is shorter


def test_a_clock_that_was_ahead_does_not_make_what_is_not_valid_yet() -> None:
    first = made()
    ahead = renewed(first, NOW + 60 * DAY)
    verify(leaf(ahead), first.cas, NOW)
    # Right again: nothing of the future remains in use.
    back = renewed(ahead, NOW)
    assert leaf(back).not_valid_after_utc == NOW + LIFE.leaf


def test_a_ca_from_the_future_signs_nothing_and_is_not_made_again_and_again() -> None:
    ahead = made(NOW + 10 * DAY)
    back = renewed(ahead, NOW)
    verify(leaf(back), back.cas, NOW)
    assert len(back.cas) == 2
    again = Authority.read(back.contents)
    assert renewed(again, NOW) is again


@pytest.mark.parametrize(
    ("leaf_life", "ca_life"), [(30 * DAY, 119 * DAY), (timedelta(seconds=2), DAY), (DAY, -DAY)]
)
def test_lives_that_cannot_be_kept_are_refused(leaf_life: timedelta, ca_life: timedelta) -> None:
    with pytest.raises(ValueError, match="four times"):
        Life(leaf_life, ca_life)


def test_long_names_fit() -> None:
    name = f"{'s' * 63}.{'n' * 63}.svc"
    authority = Authority().renewed((name,), LIFE, NOW)
    builder = PolicyBuilder().store(Store(list(authority.cas))).time(NOW)
    builder.build_server_verifier(x509.DNSName(name)).verify(leaf(authority), [])


def test_a_fingerprint_is_what_openssl_prints() -> None:
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
        # One byte of something good is another.
        st.builds(
            lambda text, at, byte: text[: at % len(text)] + byte + text[at % len(text) + 1 :],
            st.sampled_from([*GOOD.values(), *OLD.values()]),
            st.integers(0, 2000),
            st.binary(min_size=1, max_size=1),
        ),
    ),
)


@given(contents, st.integers(-500, 500), st.booleans())
@settings(max_examples=300)
def test_from_anything_something_good_is_made_at_once(
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
    """One that goes over to what is stored as `SelfManaged` does, with a clock of the test's."""

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
@settings(max_examples=25)
def test_what_is_registered_always_verifies_what_is_served(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Over years, with a registration and a writer that fail now and then, but not for a week."""
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
            stored = Authority.read(stored.renewed(NAMES, LIFE, now, replica.trusted(now)).contents)
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
