"""What `podsettle serve` says to options that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process import podsettle

SERVE = ("serve", "--port", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tls", "self-managed", "--manifests", "."), "need a cluster"),
        (("--webhook-configuration", "podsettle", "--manifests", "."), "need a cluster"),
        (("--tls", "self-managed"), "need --own-namespace"),
        (("--webhook-configuration", "podsettle"), "need --own-namespace"),
        (
            ("--tls", "self-managed", "--own-namespace", "n", "--ca-life", "1h"),
            "--leaf-life and --ca-life: ",
        ),
        (("--drain-quiet", "ten"), "'ten' is not a duration: write it as"),
        (("--manifests", ".", "--client-ca", "/none/such"), "/none/such: No such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_words(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path).returncode == 0
    found = podsettle(*SERVE, "--certs-dir", tmp_path, *arguments, env={"KUBECONFIG": "/none"})
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr
