"""A real Prometheus, of Debian's package `prometheus`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.kube.cluster import Json
from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS, await_that


@contextmanager
def prometheus(directory: Path, configuration: Json) -> Iterator[httpx.Client]:
    """A running Prometheus, by its API."""
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    log = directory / "prometheus.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        with httpx.Client(
            base_url=f"http://{address}", trust_env=False, timeout=TIMEOUT_SECONDS
        ) as client:

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return client.get("/-/ready").status_code == 200
                except httpx.TransportError:
                    return False

            await_that(is_ready, "Prometheus is ready")
            yield client
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
