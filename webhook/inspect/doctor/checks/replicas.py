"""The number of replicas, and whether each of them is ready."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.core.types import Json
from webhook.inspect.cluster_flags import kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.commands import logs, merge_patch, restart
from webhook.inspect.doctor.model import Result, fault, not_looked_at, ok, unknown, warning
from webhook.inspect.doctor.round_readings import Installed, Probe, is_ready
from webhook.inspect.installation import Installation

_MIN_REPLICAS = 2

# These lines of /readyz belong to other checks.
_CHECKED_ELSEWHERE = frozenset({"certificate", "registration", "crd", "policies in force", "lease"})


async def _check_count(installed: Installed) -> list[Result]:
    installation = installed.installation
    pods = await installed.pods()
    results: list[Result] = []
    try:
        scaler = await _autoscaler(installed)
    except NotAllowedError as error:
        scaler = None
        if installation.desired_replicas < _MIN_REPLICAS:
            raise
        results.append(unknown(f"an autoscaler could remove replicas, and {error}"))
    minimum = _minimum(installation, scaler)
    if minimum < _MIN_REPLICAS:
        return [*results, _too_few(installation, scaler, minimum)]
    wanted = max(installation.desired_replicas, minimum)
    if len(pods) < wanted:
        return [
            *results,
            fault(
                f"{len(pods)} of {wanted} replicas exist",
                "The events of the ReplicaSet say why the pods are not created.",
                kubectl("-n", installation.namespace, "describe", "replicasets"),
            ),
        ]
    return [*results, ok(f"{len(pods)} replicas exist")]


def _minimum(installation: Installation, scaler: Json | None) -> int:
    """Return the number of replicas that the installation may shrink to."""
    if scaler is None:
        return installation.desired_replicas
    minimum: int = scaler["spec"].get("minReplicas", 1)
    return minimum


async def _autoscaler(installed: Installed) -> Json | None:
    """Return the HorizontalPodAutoscaler of the Deployment, or None."""
    installation = installed.installation
    right = Right("list", "autoscaling", "horizontalpodautoscalers", installation.namespace)
    for scaler in await installed.reader.list(right):
        target = scaler["spec"]["scaleTargetRef"]
        if (target["kind"], target["name"]) == ("Deployment", installation.name):
            return scaler
    return None


def _too_few(installation: Installation, scaler: Json | None, minimum: int) -> Result:
    namespace, name = installation.namespace, installation.name
    if scaler is None:
        value = "replicas: 2"
        command = kubectl("-n", namespace, "scale", f"deployment/{name}", "--replicas=2")
    else:
        value = "autoscaling.minReplicas: 2"
        body = {"spec": {"minReplicas": _MIN_REPLICAS}}
        command = merge_patch("hpa", scaler["metadata"]["name"], body, namespace)
    if minimum == 0:
        result, effect = "no replica is wanted", "No pod is settled."
    else:
        result, effect = "one replica only", "Pods are not settled while this replica restarts."
    return fault(result, f"{effect} Set {value} in the values of the chart too.", command)


async def _check_readiness(installed: Installed) -> list[Result]:
    pods = await installed.pods()
    if not pods:
        return [unknown("no replica exists")]
    ready = {pod["metadata"]["name"] for pod in pods if is_ready(pod)}
    try:
        probes = await installed.probes()
    except NotAllowedError as error:
        # The kubelet says in the pod whether it is ready.
        return [*judge_conditions(installed.installation, pods, ()), not_looked_at(error)]
    results = [
        _no_answer(installed.installation, probe, probe.pod in ready)
        for probe in probes
        if probe.problem
    ]
    results += _failed_lines(installed, probes)
    # The line of another check, or a line above, says why these replicas are not ready.
    explained = {
        probe.pod
        for probe in probes
        if probe.problem or any(line.mark == "-" for line in probe.lines)
    }
    results += judge_conditions(installed.installation, pods, explained)
    return results or [ok(f"{len(ready)} replicas are ready, and each passes its own checks")]


def _failed_lines(installed: Installed, probes: Sequence[Probe]) -> list[Result]:
    """Return a result for each line of /readyz that no other check explains, with its replicas."""
    found: dict[tuple[str, str], list[str]] = {}
    for probe in probes:
        for line in probe.lines:
            if line.mark == "+" or line.name in _CHECKED_ELSEWHERE:
                continue
            if installed.has_fault("permissions") and "403" in line.note:
                continue
            found.setdefault((line.mark, f"{line.name}: {line.note}"), []).append(probe.pod)
    log = logs(installed.installation, tail=100)
    results = []
    for (mark, text), names in found.items():
        describe = fault if mark == "-" else warning
        results.append(describe(f"{', '.join(names)}: {text}", "The log has the details.", log))
    return results


def judge_conditions(
    installation: Installation, pods: list[Json], explained: Collection[str]
) -> Iterator[Result]:
    """Yield a result if replicas are not ready, except for those that are `explained`.

    It is a fault if no replica is ready. This needs no right but to read the pods.
    """
    names = [pod["metadata"]["name"] for pod in pods if not is_ready(pod)]
    remaining = [name for name in names if name not in explained]
    if not remaining:
        return
    describe = fault if len(names) == len(pods) else warning
    sentence = "Their events and their log say why."
    commands = (
        kubectl("-n", installation.namespace, "describe", "pod", *remaining),
        logs(installation, tail=100),
    )
    text = f"{len(pods) - len(names)} of {len(pods)} replicas are ready; not ready: "
    yield describe(text + ", ".join(remaining), sentence, *commands)


def _no_answer(installation: Installation, probe: Probe, is_ready: bool) -> Result:
    if is_ready:
        return unknown(f"{probe.pod} is ready, but could not be asked: {probe.problem}")
    return fault(
        f"{probe.pod} is not ready and does not answer: {probe.problem}",
        "Restart the replicas. If they still do not answer, read their log and their events.",
        restart(installation),
    )


REPLICAS = DoctorCheck("replicas", "whether several replicas exist", _check_count)
READINESS = DoctorCheck(
    "readiness",
    "whether each replica passes its own checks (/readyz)",
    _check_readiness,
)
