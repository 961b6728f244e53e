"""Faults of a replica's surroundings: its disk, its clock, its name servers, its registries."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from aiohttp import web

from tests.faults.http_thread import HttpThread
from tests.faults.rig import PODS_NAMESPACE, Rig
from tests.faults.scenario import Steps, Unavailable, scenario
from tests.support.every_remedy import every_remedy_pod
from tests.support.helm_release import HOST
from tests.support.kube.cluster import LOOPBACK
from tests.support.name_server import silent_dns
from tests.support.registry import image_of, serving
from webhook.tls.issuing import issue_ca, issue_leaf

_FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
_DISK_BYTES = 64 * 1024
_IMAGES = 1000
"""More than a run creates pods. Each pod needs another look-up."""


@scenario("the disk of `--certs-dir` is full when the certificate is renewed")
def disk_full(rig: Rig) -> Steps:
    """Fill the disk while new files are written in place, so that they stay empty."""
    directory, renew = _certificates_on_a_disk(rig)
    yield
    for name in ("tls.key", "tls.crt"):
        (directory / name).write_bytes(b"")
    filler = directory / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    renew()
    yield
    filler.unlink()
    renew()


@scenario("the disk of `--certs-dir` is read-only when the certificate is renewed")
def disk_read_only(rig: Rig) -> Steps:
    """Make the disk read-only, so that the old files stay."""
    directory, renew = _certificates_on_a_disk(rig)
    yield
    subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
    renew()
    yield
    subprocess.run(["mount", "-o", "remount,rw", directory], check=True)
    renew()


def _certificates_on_a_disk(rig: Rig) -> tuple[Path, Callable[[], None]]:
    """Let the replicas read certificates from a disk of their own.

    Return its directory, and how to write a new certificate to it, as far as it can be written.
    """
    if os.geteuid() != 0:
        raise Unavailable("a disk for --certs-dir needs root")
    directory = rig.directory / "certs"
    directory.mkdir()
    size = f"size={_DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], check=True)
    rig.stack.callback(lambda: subprocess.run(["umount", "--lazy", directory], check=True))
    ca = issue_ca("faults", timedelta(days=1))
    (directory / "ca.crt").write_bytes(ca.certificate_pem)

    def renew() -> None:
        leaf = issue_leaf(ca, [HOST], timedelta(hours=1), datetime.now(UTC))
        for name, content in (("tls.key", leaf.key_pem), ("tls.crt", leaf.certificate_pem)):
            with suppress(OSError):
                (directory / name).write_bytes(content)

    renew()
    rig.arguments.append(f"--certs-dir={directory}")
    rig.helm_flags += [
        "--set=certificates.source=files,certificates.files.secretName=mine",
        f"--set-file=webhook.caBundle={directory}/ca.crt",
    ]
    return directory, renew


def _clock(offset: str, rig: Rig) -> Steps:
    if _FAKETIME is None:
        raise Unavailable("needs libfaketime (on Debian: apt install libfaketime)")
    clock = rig.directory / "clock"
    clock.write_text("+0")
    rig.variables |= {
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        # The clock of the event loop is not set, as on a real machine.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    yield
    clock.write_text(offset)
    yield
    clock.write_text("+0")


for _name, _offset, _about in (
    ("clock-hour-ahead", "+1h", "an hour ahead, and back"),
    ("clock-hour-back", "-1h", "an hour back, and ahead again"),
    ("clock-year-ahead", "+1y", "a year ahead, and back"),
    ("clock-year-back", "-1y", "a year back, and ahead again"),
):
    scenario(f"the clock of all replicas goes {_about}", name=_name)(partial(_clock, _offset))


@scenario("the registry that policies query accepts connections and does not answer")
def registry_hangs(rig: Rig) -> Steps:
    """Stop the answers of a registry, while each pod names another image."""
    serve = serving(image_of(["/app"]))
    answering = asyncio.Event()
    answering.set()

    async def handle(request: web.Request) -> web.StreamResponse:
        await answering.wait()
        return await serve(request)

    registry = HttpThread(handle)
    rig.stack.enter_context(registry.serving())
    ca = rig.directory / "registry-ca.crt"
    registry.ca.cert_pem.write_to_path(str(ca))
    rig.variables["SSL_CERT_FILE"] = str(ca)
    _need_images(rig, f"{LOOPBACK}:{registry.port}")
    yield
    registry.call(answering.clear)
    yield
    registry.call(answering.set)


@scenario("the name servers do not answer, while policies query a registry by its name")
def dns_away(rig: Rig) -> Steps:
    """Give the replicas a name server that does not answer, from their start to their end."""
    if os.geteuid() != 0:
        raise Unavailable("another resolv.conf needs root")
    prefix = rig.stack.enter_context(silent_dns(rig.directory))
    rig.prefixes = [prefix, prefix]
    _need_images(rig, "registry.faults.test")
    rig.done = "from the start of the replicas on"
    yield
    yield


def _need_images(rig: Rig, registry: str) -> None:
    """Create pods with a container whose command only its image knows, each another image."""
    rig.policy["imageConfig"] = {"lookup": "Registry", "registries": [registry]}
    rig.pods = [every_remedy_pod("pod", PODS_NAMESPACE) for _ in range(_IMAGES)]
    for number, pod in enumerate(rig.pods):
        main = pod["spec"]["containers"][0]
        main["image"] = f"{registry}/app:{number}"
        del main["command"]
