"""The certificate directory: made once, kept while it is good, replaced when it is not."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from webhook.tls.files import (
    CertificateDirectory,
    CertificateError,
    ensure_development_certificates,
)

NOW = datetime.now(UTC)


@pytest.fixture
def directory(tmp_path: Path) -> CertificateDirectory:
    return CertificateDirectory(tmp_path / "certs")


def test_made_once_and_kept(directory: CertificateDirectory) -> None:
    assert ensure_development_certificates(directory)
    before = directory.certificate.read_bytes()
    assert not ensure_development_certificates(directory)
    assert directory.certificate.read_bytes() == before
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "ca.crt",
        "tls.crt",
        "tls.key",
    ]
    directory.ssl_context()


def test_nobody_else_reads_the_key(directory: CertificateDirectory) -> None:
    ensure_development_certificates(directory)
    assert stat.S_IMODE(directory.key.stat().st_mode) == 0o600


def test_replaced_after_two_thirds_of_its_life(directory: CertificateDirectory) -> None:
    ensure_development_certificates(directory, now=NOW)
    assert not ensure_development_certificates(directory, now=NOW + timedelta(days=59))
    assert ensure_development_certificates(directory, now=NOW + timedelta(days=61))


def test_replaced_for_another_name(directory: CertificateDirectory) -> None:
    ensure_development_certificates(directory)
    assert ensure_development_certificates(directory, ("localhost", "build.example"))
    assert not ensure_development_certificates(directory, ("build.example",))


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\n!\n"])
def test_replaced_where_a_file_is_missing_or_broken(
    directory: CertificateDirectory, name: str, content: bytes | None
) -> None:
    ensure_development_certificates(directory)
    (directory.path / name).unlink()
    if content is not None:
        (directory.path / name).write_bytes(content)
    assert ensure_development_certificates(directory)
    directory.ssl_context()


def test_a_key_of_another_certificate_is_named(
    directory: CertificateDirectory, tmp_path: Path
) -> None:
    ensure_development_certificates(directory)
    other = CertificateDirectory(tmp_path / "other")
    ensure_development_certificates(other)
    directory.key.write_bytes(other.key.read_bytes())
    with pytest.raises(CertificateError, match=r"tls\.key"):
        directory.ssl_context()


def test_a_missing_certificate_says_what_to_run(directory: CertificateDirectory) -> None:
    with pytest.raises(CertificateError, match="podsettle certs --certs-dir"):
        directory.ssl_context()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="file"):
        ensure_development_certificates(CertificateDirectory(tmp_path / "file" / "certs"))
