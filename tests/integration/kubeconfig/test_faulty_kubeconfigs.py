"""Kubeconfigs with faults: each is an error that names the file, and never an anonymous user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubeconfig_oracle import credential, document, encoded
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import NoClusterError

SERVER = "https://192.0.2.1:6443"


def kubeconfig(
    directory: Path,
    *,
    cluster: Any = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> Path:
    path = directory / "config"
    written = document({"server": SERVER} if cluster is None else cluster, user, context)
    path.write_text(yaml.safe_dump(written))
    return path


async def error_of(path: Path) -> str:
    with pytest.raises(NoClusterError) as caught:
        await ApiServer.connect(kubeconfig=str(path))
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


def plugin(directory: Path, script: str) -> dict[str, Any]:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return executing(str(path))


def executing(command: str) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "interactiveMode": "Never", "command": command}}


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("echo s3cret", "is not an ExecCredential"),
        ("echo '{}'", "is not an ExecCredential"),
        (credential({"token": "s3cret"}, version="s3cret"), "has not the apiVersion"),
        (
            credential({"token": "t", "expirationTimestamp": "s3cret"}),
            "is not an ExecCredential",
        ),
        (credential("s3cret token"), "is not an ExecCredential"),
        (credential({}), "printed no token and no certificate"),
        (credential({"clientCertificateData": "s3cret"}), "a certificate without a key"),
    ],
)
async def test_output_of_a_failed_credential_plugin_is_not_shown(
    script: str,
    cause: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = await error_of(kubeconfig(tmp_path, user=plugin(tmp_path, script)))
    assert "users[u].exec: getting credentials: the credential plugin " in text
    assert cause in text
    assert "s3cret" not in text + caplog.text + capfd.readouterr().err


async def test_standard_error_of_a_credential_plugin_is_passed_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "echo s3cret; echo please log in >&2; exit 3"
    text = await error_of(kubeconfig(tmp_path, user=plugin(tmp_path, script)))
    assert text.endswith(": it ended with exit code 3")
    assert capfd.readouterr().err == "please log in\n"


async def test_missing_credential_plugin_is_an_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, user=executing("/none/such"))
    assert "No such file" in await error_of(path)


async def test_certificate_that_is_none_is_an_error(tmp_path: Path) -> None:
    data = encoded(b"no certificate")
    path = kubeconfig(tmp_path, cluster={"server": SERVER, "certificate-authority-data": data})
    assert "certificate or key is not valid" in await error_of(path)


@pytest.mark.parametrize("token", ["a\nb", "a\x00b", "a\x1bb"])
async def test_token_that_no_header_can_have_is_an_error(token: str, tmp_path: Path) -> None:
    assert "the token has characters" in await error_of(kubeconfig(tmp_path, user={"token": token}))


async def test_namespace_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    assert "contexts[x].namespace: Expected" in await error_of(
        kubeconfig(tmp_path, context={"namespace": 5})
    )


async def test_context_that_does_not_exist_is_an_error_that_names_the_others(
    tmp_path: Path,
) -> None:
    path = kubeconfig(tmp_path)
    with pytest.raises(NoClusterError) as caught:
        await ApiServer.connect(kubeconfig=str(path), context="other")
    assert str(caught.value) == f"{path}: there is no context 'other'; it has: x"


@pytest.mark.parametrize("cluster", [{"insecure-skip-tls-verify": True}, {"server": ""}])
async def test_cluster_without_a_server_is_an_error(
    cluster: dict[str, Any], tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path, cluster=cluster)
    assert "clusters[c].server: " in await error_of(path)


@pytest.mark.parametrize("content", ["5", "[]", "''", "clusters: 5"])
async def test_file_that_is_no_kubeconfig_is_an_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert "no cluster found: " in await error_of(path)


async def test_empty_device_is_an_error_without_words_of_python() -> None:
    assert "NoneType" not in await error_of(Path(os.devnull))
