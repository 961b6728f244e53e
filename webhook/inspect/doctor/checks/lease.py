"""The Lease: whether a running replica holds it and renews it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from webhook.cluster.reader import path_of
from webhook.cluster.rights import Right
from webhook.core.types import Json
from webhook.inspect.cluster_flags import kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.commands import logs, merge_patch
from webhook.inspect.doctor.model import Result, fault, ok, unknown
from webhook.inspect.doctor.round_readings import Installed, is_ready

_POLL_SECONDS = 0.5
_OBSERVED_SECONDS = 6.0
"""How long a Lease without renewal is watched. A leader renews it every 2.0 to 2.4 s, and a request
takes up to 5 s."""
_MAX_TAKEOVER_SECONDS = 20.0
"""Other replicas acquire an abandoned Lease by themselves within 17 s, if its duration is 15 s. A
Lease with a longer duration is not waited for."""


async def _check_lease(installed: Installed) -> list[Result]:
    installation = installed.installation
    namespace, name = installation.namespace, installation.lease
    right = Right("get", "coordination.k8s.io", "leases", namespace, name)
    lease = await installed.reader.get(right)
    if lease is None:
        return [
            fault(
                f"Lease {namespace}/{name} does not exist",
                "Without it podsettle writes nothing: no caBundle, no certificate, no status. A "
                "replica creates it within seconds, and the log says why it does not.",
                logs(installation, tail=-1),
            )
        ]
    pods = await installed.pods()
    if not any(map(is_ready, pods)):
        return [unknown("no replica is ready")]
    first = lease.get("spec") or {}
    duration = first.get("leaseDurationSeconds") or 0
    seconds = _OBSERVED_SECONDS
    if duration + 4 <= _MAX_TAKEOVER_SECONDS:
        seconds = max(seconds, duration + 4)
    renewed = await _watch(installed, path_of(right), first, seconds)
    if renewed is not None:
        return [ok(f"{_host(renewed)} holds the Lease and renews it")]
    if installed.has_fault("permissions"):
        return [unknown("no replica renews it; the missing permission may be the cause")]
    hosts = {pod["metadata"]["name"] for pod in pods}
    return [_not_renewed(installed, first, hosts)]


async def _watch(installed: Installed, path: str, first: Json, seconds: float) -> Json | None:
    """Return the spec of the Lease once a replica has written it, or None if none does.

    The times in the Lease are not compared with a clock, because clocks differ.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        spec: dict[str, Any] = (await installed.server.request("GET", path)).get("spec") or {}
        if spec.get("holderIdentity") and _written(spec) != _written(first):
            return spec
    return None


def _written(spec: Json) -> tuple[object, object]:
    return spec.get("holderIdentity"), spec.get("renewTime")


def _host(spec: Json) -> str:
    """Return the host in the holder's identity, which is the name of its pod."""
    holder: str = spec.get("holderIdentity") or ""
    return holder.rpartition("_")[0] or holder


def _not_renewed(installed: Installed, spec: Json, hosts: set[str]) -> Result:
    installation = installed.installation
    host = _host(spec)
    effect = "Until another replica gets it, podsettle writes nothing: no caBundle, no status."
    if not host:
        return fault(
            "no replica acquires the Lease",
            f"{effect} The log says why.",
            logs(installation, tail=-1),
        )
    if host in hosts:
        return fault(
            f"{host} holds the Lease and does not renew it",
            f"{effect} Restart this replica.",
            kubectl("-n", installation.namespace, "delete", "pod", host),
        )
    return fault(
        f"{host} holds the Lease for {spec.get('leaseDurationSeconds')} s, and does not run",
        f"{effect} Release the Lease.",
        merge_patch(
            "lease", installation.lease, {"spec": {"holderIdentity": ""}}, installation.namespace
        ),
    )


LEASE = DoctorCheck("lease", "whether a running replica holds the Lease", _check_lease)
