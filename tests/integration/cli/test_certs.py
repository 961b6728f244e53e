"""Tests of `podsettle certs`."""

from __future__ import annotations

from pathlib import Path

from tests.support.process import podsettle


def test_certs_creates_certificates_once_and_keeps_them(tmp_path: Path) -> None:
    first = podsettle("certs", "--certs-dir", tmp_path)
    assert first.returncode == 0
    assert first.stdout.startswith(f"made {tmp_path / 'tls.crt'} for localhost, 127.0.0.1, ::1,")
    assert first.stdout.endswith(f"clients trust {tmp_path / 'ca.crt'}\n")
    second = podsettle("certs", "--certs-dir", tmp_path)
    assert second.stdout.startswith("kept ")


def test_name_option_adds_a_name_to_the_certificate(tmp_path: Path) -> None:
    done = podsettle("certs", "--certs-dir", tmp_path, "--name", "podsettle.podsettle.svc")
    assert "::1, podsettle.podsettle.svc," in done.stdout


def test_directory_that_cannot_be_created_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = podsettle("certs", "--certs-dir", tmp_path / "file" / "certs")
    assert done.returncode == 2
    assert done.stderr.startswith("podsettle: ")
    assert "Not a directory" in done.stderr
