"""The certificate directory: created once, kept while valid, else replaced."""

from __future__ import annotations

import asyncio
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.stepped_loop import SteppedLoop, stepped
from webhook.cluster.source import Check
from webhook.server.health import log_check_changes
from webhook.tasks import supervise
from webhook.tls.authority import fingerprint
from webhook.tls.certificate_directory import (
    CertificateDirectory,
    CertificateError,
    CertificateFiles,
)
from webhook.tls.development_certificates import ensure_development_certificates
from webhook.tls.file_source import FileSource
from webhook.tls.issuing import issue_ca, issue_leaf
from webhook.tls.served_certificate_check import verify_error

NOW = datetime.now(UTC)


@pytest.fixture
def directory(tmp_path: Path) -> CertificateDirectory:
    return CertificateDirectory(tmp_path / "certs")


def test_development_certificates_are_created_once(directory: CertificateDirectory) -> None:
    assert ensure_development_certificates(directory)
    before = directory.certificate.read_bytes()
    assert not ensure_development_certificates(directory)
    assert directory.certificate.read_bytes() == before
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "ca.crt",
        "tls.crt",
        "tls.key",
    ]
    # Only its owner may read the key.
    assert stat.S_IMODE(directory.key.stat().st_mode) == 0o600
    directory.load_checked()


def test_each_file_of_the_development_certificates_is_read_once(
    directory: CertificateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process may replace or remove a file between two reads.
    ensure_development_certificates(directory)
    names: list[str] = []
    read_bytes = Path.read_bytes

    def counted(path: Path) -> bytes:
        names.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    assert not ensure_development_certificates(directory)
    assert sorted(names) == ["ca.crt", "tls.crt", "tls.key"]


def test_development_certificates_are_replaced_after_two_thirds_of_their_lifetime(
    directory: CertificateDirectory,
) -> None:
    ensure_development_certificates(directory, now=NOW)
    assert not ensure_development_certificates(directory, now=NOW + timedelta(days=59))
    assert ensure_development_certificates(directory, now=NOW + timedelta(days=61))


def test_development_certificates_are_replaced_for_a_new_name(
    directory: CertificateDirectory,
) -> None:
    ensure_development_certificates(directory)
    assert ensure_development_certificates(directory, ("localhost", "build.example"))
    assert not ensure_development_certificates(directory, ("build.example",))


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\n!\n"])
def test_development_certificates_are_replaced_if_a_file_is_missing_or_broken(
    directory: CertificateDirectory, name: str, content: bytes | None
) -> None:
    ensure_development_certificates(directory)
    (directory.path / name).unlink()
    if content is not None:
        (directory.path / name).write_bytes(content)
    assert ensure_development_certificates(directory)
    directory.load_checked()


def test_the_error_of_a_missing_certificate_names_the_command(
    directory: CertificateDirectory,
) -> None:
    with pytest.raises(CertificateError, match="podsettle certs --certs-dir"):
        directory.load_checked()


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "No such file or directory"),
        ("no key", "not a PEM private key"),
        ("encrypted", "the private key has a password"),
        ("of another type", "not the private key of tls.crt"),
        ("other", "not the private key of tls.crt"),
    ],
)
def test_unusable_key_is_reported_with_its_problem_and_the_command(
    key: str | None, problem: str, directory: CertificateDirectory, tmp_path: Path
) -> None:
    ensure_development_certificates(directory)
    if key is None:
        directory.key.unlink()
    elif key == "other":
        other = CertificateDirectory(tmp_path / "other")
        ensure_development_certificates(other)
        directory.key.write_bytes(other.key.read_bytes())
    elif key == "no key":
        directory.key.write_text(key)
    else:
        secret: KeySerializationEncryption = NoEncryption()
        private: PrivateKeyTypes = ed25519.Ed25519PrivateKey.generate()
        if key == "encrypted":
            private = load_pem_private_key(directory.key.read_bytes(), None)
            secret = BestAvailableEncryption(b"secret")
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        directory.key.write_bytes(pem)
    with pytest.raises(CertificateError) as error:
        directory.load_checked()
    assert str(error.value).startswith(f"{directory.key}: {problem}; ")
    assert str(error.value).endswith(f"with: podsettle certs --certs-dir {directory.path}")


def test_a_directory_that_is_not_writable_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="file"):
        ensure_development_certificates(CertificateDirectory(tmp_path / "file" / "certs"))


@pytest.fixture
async def source(directory: CertificateDirectory) -> AsyncIterator[FileSource]:
    """A running source with its own files."""
    ensure_development_certificates(directory)
    found = FileSource(directory)
    async with found.running():
        yield found
    assert len(asyncio.all_tasks()) == 1


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


def write(directory: CertificateDirectory, life: timedelta, now: datetime = NOW) -> bytes:
    """Replace the certificates; return the new CA as PEM."""
    ca = issue_ca("other", life, now)
    leaf = issue_leaf(ca, ["localhost"], life, now)
    directory.key.write_bytes(leaf.key_pem)
    directory.certificate.write_bytes(leaf.certificate_pem)
    return ca.certificate_pem


def test_certificate_that_openssl_refuses_is_named_instead_of_its_key(
    directory: CertificateDirectory,
) -> None:
    ensure_development_certificates(directory)
    chain = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    directory.certificate.write_bytes(directory.certificate.read_bytes() + chain)
    with pytest.raises(CertificateError) as error:
        directory.load_checked()
    assert str(error.value).startswith(f"{directory.certificate}: [PEM]")


async def test_new_files_are_served_without_a_restart(
    directory: CertificateDirectory, source: FileSource
) -> None:
    assert verify_error(source.context, "localhost", directory.ca.read_bytes()) == ""
    assert (source.ready, source.problem, source.bundle) == (True, "", None)
    ca = write(directory, timedelta(days=3))
    await eventually(lambda: verify_error(source.context, "localhost", ca) == "")
    assert source.expires == directory.load().not_valid_after_utc
    assert source.fingerprint == fingerprint(directory.load())
    assert source.problem == ""


async def test_files_that_do_not_match_are_reported_and_not_served(
    directory: CertificateDirectory,
    source: FileSource,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ca, key = directory.ca.read_bytes(), directory.key.read_bytes()
    other = CertificateDirectory(tmp_path / "other")
    ensure_development_certificates(other)
    checks = lambda: [Check("certificate", source.ready, source.problem)]  # noqa: E731
    with caplog.at_level("INFO"):
        async with supervise(lambda: log_check_changes(checks, poll_seconds=0)):
            directory.key.write_bytes(other.key.read_bytes())
            await eventually(lambda: "tls.key" in caplog.text)
            assert source.ready
            assert verify_error(source.context, "localhost", ca) == ""
            directory.key.unlink()
            await eventually(lambda: "No such file" in caplog.text)
            directory.key.write_bytes(key)
            await eventually(lambda: caplog.messages[2:] == ["certificate: ok again"])


def test_a_source_with_an_expired_certificate_is_not_ready(directory: CertificateDirectory) -> None:
    ensure_development_certificates(directory)
    write(directory, timedelta(days=1), NOW - timedelta(days=2))
    source = FileSource(directory)
    assert not source.ready
    assert "tls.crt: expired at " in source.problem


async def test_a_failed_read_is_repeated_without_a_change_of_files(
    directory: CertificateDirectory,
) -> None:
    failures: list[OSError] = []

    class FailingDirectory(CertificateDirectory):
        def read(self) -> CertificateFiles:
            if failures:
                raise failures.pop()
            return super().read()

    ensure_development_certificates(directory)
    source = FileSource(FailingDirectory(directory.path))
    async with source.running():
        failures.append(OSError(24, "Too many open files"))
        ca = write(directory, timedelta(days=3))
        await eventually(lambda: verify_error(source.context, "localhost", ca) == "")
    assert not failures


class Replacements:
    """Certificates of CAs of their own that replace one another, at a certain access to a file."""

    def __init__(self, directory: CertificateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._bundles: dict[str, bytes] = {}
        self._accesses = self._due_at = 0
        self._act: Callable[[], object] = self.write
        for owner, name in (
            (Path, "stat"),
            (Path, "read_bytes"),
            (ssl.SSLContext, "load_cert_chain"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, access: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._accesses += 1
            if self._accesses == self._due_at:
                self._act()
            return access(*arguments, **options)

        return counted

    def write(self) -> None:
        bundle = write(self._directory, timedelta(days=len(self._bundles) + 1))
        self._bundles[fingerprint(self._directory.load())] = bundle

    def remove(self) -> None:
        self._directory.certificate.unlink()
        self._directory.key.unlink()

    def plan(self, change: str, access: int) -> None:
        """Let a change happen just before an access, counted from now. 0 means never."""
        self._act = getattr(self, change)
        self._due_at = self._accesses + access

    def check_served(self, source: FileSource) -> None:
        """Check that a client can connect, to the certificate that the source names."""
        bundle = self._bundles[source.fingerprint]
        assert verify_error(source.context, "localhost", bundle) == ""

    def newest_is_served(self, source: FileSource) -> bool:
        return source.fingerprint == list(self._bundles)[-1]


@pytest.mark.parametrize("change", ["write", "remove"])
@pytest.mark.parametrize("access", range(1, 11))
@stepped
async def test_files_that_change_between_two_accesses_are_served_whole_or_not_at_all(
    directory: CertificateDirectory, monkeypatch: pytest.MonkeyPatch, change: str, access: int
) -> None:
    directory.path.mkdir()
    files = Replacements(directory, monkeypatch)
    files.write()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    source = FileSource(directory)
    async with source.running():
        files.write()
        files.plan(change, access)
        for _ in range(3):
            await loop.advance(1)
            files.check_served(source)
        files.plan(change, 0)
        if change == "remove":
            files.write()
        await loop.advance(1)
        files.check_served(source)
        assert files.newest_is_served(source)
        assert source.problem == ""


@pytest.mark.parametrize("access", range(1, 11))
def test_source_names_the_certificate_that_it_serves_if_files_change_while_it_starts(
    directory: CertificateDirectory, monkeypatch: pytest.MonkeyPatch, access: int
) -> None:
    directory.path.mkdir()
    files = Replacements(directory, monkeypatch)
    files.write()
    files.plan("write", access)
    with suppress(CertificateError):  # The start is repeated.
        files.check_served(FileSource(directory))
