"""The replicas: how many there are, and what they say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import timedelta

from pydantic import ValidationError

from webhook.cluster.errors import Unreachable, status_message
from webhook.cluster.raw_responses import server_time
from webhook.cluster.readiness import Readiness
from webhook.cluster.rights import NotAllowedError, Right
from webhook.core.types import Json
from webhook.inspect.doctor.model import Finding, Installed, State, UnansweredError, is_ready

_MIN_REPLICAS = 2
"""With one replica, pods are not settled while it restarts."""
_MAX_ASKED_PODS = 20
"""The maximum number of replicas that are asked. The chart's autoscaler starts at most 10."""
_TIMEOUT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1024 * 1024
_SOON = timedelta(days=7)
"""The remaining lifetime that is a warning if podsettle does not renew the certificate itself."""
_NOTE_IS_FAULT = frozenset({"crd", "lease", "registration"})
"""The checks that are a fault even if they pass, with a note. The replica answers reviews, but the
API server drops fields of policies, or podsettle cannot keep its webhooks up to date."""
_CAUSES = {
    "registration": {"webhook configuration", "certificate"},
    "policies in force": {"policies"},
    "settlepolicies": {"crd"},
}
"""The faults that explain what a replica says."""


async def check_count(installed: Installed) -> AsyncIterator[Finding]:
    """Yield whether several replicas are wanted, also by an autoscaler, and exist."""
    installation = installed.installation
    pods = await installed.pods()
    minimum = desired = installation.deployment["spec"].get("replicas", 1)
    right = Right("list", "autoscaling", "horizontalpodautoscalers", installation.namespace)
    try:
        for scaler in await installed.reader.list(right):
            target = scaler["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) == ("Deployment", installation.name):
                minimum = scaler["spec"].get("minReplicas", 1)
    except NotAllowedError as error:
        if minimum < _MIN_REPLICAS:
            raise
        yield State.UNKNOWN(f"an autoscaler could remove replicas, and it {error}")
    if minimum < _MIN_REPLICAS:
        yield State.FAULT("one replica only" if minimum else "no replica is wanted")
    elif len(pods) < (wanted := max(desired, minimum)):
        yield State.FAULT(f"{len(pods)} of {wanted} replicas exist")
    else:
        yield State.OK(f"{len(pods)} replicas exist")


async def check_readiness(installed: Installed) -> AsyncIterator[Finding]:
    """Yield the checks of replicas that fail or have a note, and replicas that are not ready."""
    pods = await installed.pods()
    if not pods:
        raise UnansweredError("no replica exists")
    try:
        answers = await asyncio.gather(*(_ask(installed, pod) for pod in pods[:_MAX_ASKED_PODS]))
    except NotAllowedError:
        # The kubelet says in the pod whether it is ready.
        for finding in _not_ready(pods, ()):
            yield finding
        raise
    found: dict[tuple[str, State, str], list[str]] = {}
    # A finding here, or that of another check, says why these replicas are not ready.
    explained = set()
    for pod, answer in zip(pods, answers, strict=False):
        name = pod["metadata"]["name"]
        if isinstance(answer, Finding):
            lines, fails = [("readiness", answer.state, answer.result)], answer.state is State.FAULT
        else:
            lines = [*_problems(answer, installed.faults)]
            fails = not answer.ready
        explained |= {name} if fails else set()
        for line in lines:
            found.setdefault(line, []).append(name)
    findings = [
        Finding(check=check, state=state, result=f"{', '.join(names)}: {text}", repair=section)
        for (check, state, text), names in found.items()
        for section in [check if check in {*_NOTE_IS_FAULT, "certificate"} else "readiness"]
    ]
    findings += _not_ready(pods, explained)
    fine = State.OK(f"{len(pods)} replicas are ready, and pass their own checks")
    for finding in findings or [fine]:
        yield finding
    expiries = [each.certificate_expires for each in answers if isinstance(each, Readiness)]
    if expiries and "certificate" not in {check for check, _, _ in found}:
        until = min(expiries)
        # The clocks of the API servers decide, not the clock of this machine.
        now = server_time((await installed.server.fetch("GET", "/version")).headers)
        if now is None:
            raise Unreachable("the API server does not say its time (header Date)")
        is_soon = until - now < _SOON and not installed.installation.is_self_managed
        state = State.FAULT if until <= now else State.WARNING if is_soon else State.OK
        yield Finding(check="certificate", state=state, result=f"it is valid until {until}")


def _problems(answer: Readiness, faults: set[str]) -> Iterator[tuple[str, State, str]]:
    """Yield the checks of a replica that fail or have a note, but not what `faults` explain."""
    faults = faults | {check.name for check in answer.checks if not check.ready}
    for check in answer.checks:
        causes = {"permissions"} if "403" in check.note else _CAUSES.get(check.name, set())
        if not causes & faults and (check.note or not check.ready):
            is_fault = not check.ready or check.name in _NOTE_IS_FAULT
            yield check.name, State.FAULT if is_fault else State.WARNING, check.note or "it fails"


def _not_ready(pods: list[Json], explained: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if replicas are not ready, except for those that are `explained`.

    It is a fault if no replica is ready. This needs no right but to read the pods.
    """
    names = [pod["metadata"]["name"] for pod in pods if not is_ready(pod)]
    remaining = [name for name in names if name not in explained]
    if remaining:
        state = State.FAULT if len(names) == len(pods) else State.WARNING
        text = f"{len(pods) - len(names)} of {len(pods)} replicas are ready; not ready: "
        yield state(text + ", ".join(remaining))


async def _ask(installed: Installed, pod: Json) -> Readiness | Finding:
    """Return the checks of one replica, or why they are not known. Raises NotAllowedError."""
    name, namespace = pod["metadata"]["name"], installed.installation.namespace
    containers = pod["spec"].get("containers") or ()
    ports = (port for each in containers for port in each.get("ports") or ())
    port = next((each["containerPort"] for each in ports if each.get("name") == "web"), None)
    if port is None:
        return State.UNKNOWN("it is older than this command, and its checks are not read")
    path = f"/api/v1/namespaces/{namespace}/pods/https:{name}:{port}/proxy/readyz?verbose"
    try:
        answer = await installed.server.fetch(
            "GET", path, timeout=_TIMEOUT_SECONDS, max_bytes=_MAX_ANSWER_BYTES
        )
    except Unreachable as error:
        why = str(error)
    else:
        if answer.status == 403:
            raise NotAllowedError(Right("get", "", "pods", namespace, name, "proxy"))
        try:
            return Readiness.model_validate_json(answer.content)
        except ValidationError:
            why = status_message(answer.content)
    if is_ready(pod):
        return State.UNKNOWN(f"it is ready, but could not be asked: {why}")
    return State.FAULT(f"it is not ready and does not answer: {why}")
