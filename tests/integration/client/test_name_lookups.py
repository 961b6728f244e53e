"""Test of a command whose DNS look-up of the API server hangs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.kubeconfigs import write_kubeconfig
from tests.support.name_server import silent_dns, silent_dns_needed
from tests.support.process import PODSETTLE, run


@silent_dns_needed
def test_command_exits_although_a_dns_look_up_hangs(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "https://api.example:6443")
    with silent_dns(tmp_path) as begin:
        env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig)}
        done = run(*begin, PODSETTLE, "wait", "pod", "--backoff-total", "0s", env=env, timeout=60)
    assert done.returncode == 2
    assert "GET /api/v1/namespaces/default/pods/pod: no answer in time" in done.stderr
