"""Tests of the cluster that other tests use: its release, and how its servers start and end."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.kube.server import ServerError
from tests.support.paths import ROOT
from tests.support.waiting import TIMEOUT_SECONDS
from tools.kube_versions import MODULES, chosen, releases, server_minor


def test_version_endpoint_reports_the_built_release(cluster: KubeCluster) -> None:
    version = cluster.request("GET", "/version").body
    release = releases(MODULES[chosen()])["kubernetes"]
    assert version["gitVersion"] == f"v{release}"
    assert (version["major"], version["minor"]) == ("1", str(server_minor()))
    said = cluster.kubectl("version", "--output=json")
    assert json.loads(said.stdout)["serverVersion"]["gitVersion"] == f"v{release}", said.stderr


def test_failed_start_shows_the_log() -> None:
    with (
        pytest.raises(ServerError, match="unknown flag: --no-such-flag"),
        KubeCluster.start("--no-such-flag"),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that kills them")
def test_a_killed_test_run_leaves_no_servers() -> None:
    script = """
from tests.support.kube.cluster import KubeCluster
with KubeCluster.start() as cluster:
    print(cluster.directory, *cluster.pids, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout
        directory, *servers = run.stdout.readline().split()
        watched = [os.pidfd_open(int(server)) for server in servers]
        run.send_signal(signal.SIGKILL)
        for descriptor in watched:
            # Readable once the process is gone.
            assert select.select([descriptor], [], [], TIMEOUT_SECONDS)[0], (
                "a server outlived the run that started it"
            )
            os.close(descriptor)
    shutil.rmtree(directory)
