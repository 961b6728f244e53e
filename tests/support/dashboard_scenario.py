"""The data for the picture of the dashboard: two replicas under load, with a short outage.

    python -m tests.support.dashboard_scenario [MINUTES]

It installs the chart on a real API server, creates pods, and lets a real Prometheus scrape
podsettle and the API server. At the end it writes docs/dashboard.svg with Prometheus' answers.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from math import pi, sin
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx

from docs.dashboard import PICTURE, make_picture
from docs.dashboard_svg import Period
from tests.support.e2e_pods import simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    HOST,
    OWN,
    POLICIES,
    RELEASE,
    ROUTING,
    Installation,
    installed,
    policy,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.prometheus import prometheus
from tests.support.waiting import await_that

Json: TypeAlias = dict[str, Any]

_SCRAPE_SECONDS = 5
_TICK_SECONDS = 0.5
_NAMESPACES = ("ci", "builds", "reports")
_OUTAGE = (0.55, 0.58)
"""The part of the time in which no replica runs."""

_SETTLEPOLICIES = (
    policy("tekton", podSelector={"matchLabels": {"app": "tekton"}}, namespaceSelector={},
           remedies={"postInitSleep": {}, "kubeletGate": {}}),
    policy("reports", podSelector={"matchLabels": {"app": "report"}}, namespaceSelector={},
           remedies={"fsGroupChangePolicy": "OnRootMismatch"}),
    policy("volatile-rootfs", podSelector={"matchLabels": {"app": "tekton"}}, namespaceSelector={},
           remedies={"runtimeClass": {"name": "overlay-volatile", "when": "NodesNeedIt"}}),
    policy("quick-jobs", podSelector={"matchLabels": {"app": "job"}}, namespaceSelector={},
           remedies={"postInitSleep": {"containers": ["*"]}}),
)  # fmt: skip


def main(minutes: float) -> None:
    """Make the data, and write the picture."""
    with (
        tempfile.TemporaryDirectory(prefix="podsettle-dashboard-") as made,
        KubeCluster.start(ROUTING) as cluster,
        installed(cluster, Path(made)) as release,
    ):
        directory = Path(made)
        _install(release)
        with prometheus(directory, _configuration(release, directory)) as client:
            start = time.time()
            _run(release, directory, minutes * 60)
            end = time.time() - _SCRAPE_SECONDS

            def ask(path: str, parameters: Mapping[str, str]) -> list[Json]:
                answer = client.get(path, params=dict(parameters)).raise_for_status()
                found: list[Json] = answer.json()["data"]["result"]
                return found

            variables = {"namespace": NAMESPACE, "job": RELEASE, "__rate_interval": "1m"}
            # Rates need a minute of data.
            period = Period(start + 60, end, _SCRAPE_SECONDS)
            PICTURE.write_text(make_picture(ask, variables, period), encoding="utf-8")


def _install(release: Installation) -> None:
    cluster = release.cluster
    release.install()
    versions = ("1.33.12", "1.33.12", "1.34.6", "1.34.6", "1.35.1")
    for number, version in enumerate(versions):
        name = f"node-{number}"
        cluster.create("/api/v1/nodes", {"metadata": {"name": name}})
        info = {"containerRuntimeVersion": f"cri-o://{version}", "kubeletVersion": f"v{version}"}
        cluster.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": info}})
    for each in _SETTLEPOLICIES:
        cluster.create(POLICIES, each)
    for name in _NAMESPACES:
        cluster.namespace(name)
    for _ in range(2):
        await_that(release.start().is_ready, "podsettle is ready")


def _configuration(release: Installation, directory: Path) -> Json:
    """Return a configuration that scrapes podsettle as the ServiceMonitor does."""
    _write_targets(release, directory)
    cluster = release.cluster
    secret = release.get(f"{OWN}/secrets/{RELEASE}-tls")
    (directory / "ca.crt").write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    authorization = {"type": "Bearer", "credentials": cluster.token}
    return {
        "global": {"scrape_interval": f"{_SCRAPE_SECONDS}s"},
        "scrape_configs": [
            {
                "job_name": RELEASE,
                "scheme": "https",
                "authorization": authorization,
                "tls_config": {"ca_file": str(directory / "ca.crt"), "server_name": HOST},
                "file_sd_configs": [
                    {"files": [str(directory / "targets.json")], "refresh_interval": "1s"}
                ],
            },
            {
                "job_name": "apiserver",
                "scheme": "https",
                "authorization": authorization,
                "tls_config": {"ca_file": str(cluster.ca_file)},
                "static_configs": [{"targets": [urlsplit(cluster.url).netloc]}],
            },
        ],
    }


def _write_targets(release: Installation, directory: Path) -> None:
    targets = [
        {
            "targets": [f"{release.address}:{replica.web_port}"],
            "labels": {"namespace": NAMESPACE, "instance": f"{RELEASE}-{number}"},
        }
        for number, replica in enumerate(release.replicas)
    ]
    new = directory / "targets.new"
    new.write_text(json.dumps(targets))
    new.rename(directory / "targets.json")


def _run(release: Installation, directory: Path, seconds: float) -> None:
    """Create pods for some time. In the middle of it, kill the replicas and start others."""
    start = time.monotonic()
    is_replaced, number = False, 0
    while (share := (time.monotonic() - start) / seconds) < 1:
        if share > _OUTAGE[0] and release.replicas and not is_replaced:
            release.stop_all(signal.SIGKILL)
        if share > _OUTAGE[1] and not is_replaced:
            for _ in range(2):
                await_that(release.start().is_ready, "podsettle is ready")
            _write_targets(release, directory)
            is_replaced = True
        number = _create_pods(release, number, round(3 + 2 * sin(2 * pi * 2 * share)))
        time.sleep(_TICK_SECONDS)


def _create_pods(release: Installation, number: int, count: int) -> int:
    """Create pods of several kinds. Return the number of the last one."""
    for _ in range(count):
        number += 1
        pod = _pod(number)
        release.cluster.create_pod(pod, dry_run=number % 10 == 0)
        if number % 40 == 0 and release.replicas:
            replica = release.replicas[0]
            try:
                replica.request("POST", "/preview", token=release.cluster.token, content=pod)
            except httpx.TransportError:
                continue
    return number


def _pod(number: int) -> Json:
    app = ("tekton", "tekton", "report", "job", "other")[number % 5]
    namespace = _NAMESPACES[number % 3]
    pod = simple_pod(f"{app}-{number}", namespace)
    pod["metadata"]["labels"] = {"app": app}
    if app == "report":
        pod["spec"]["securityContext"] = {"fsGroup": 2000}
        claim = {"persistentVolumeClaim": {"claimName": "data"}, "name": "data"}
        pod["spec"]["volumes"] = [claim]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    if app == "job":
        # Without a command of the container, podsettle cannot wrap it.
        pod["spec"].pop("initContainers")
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number // 50}"}
        owner = {**job, "uid": f"uid-{number // 50}", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 15.0)
