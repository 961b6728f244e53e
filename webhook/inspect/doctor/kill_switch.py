"""The kill switch: it takes podsettle out of the way of new pods.

It deletes the webhook configuration. podsettle does not create it again: its role has no right to,
and it writes only to the object that it has read (`metadata.uid` in the applied object).
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.rights import Right, access_to
from webhook.core.export.native_policies import LABELS
from webhook.core.types import Json
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.doctor.commands import helm_upgrade
from webhook.inspect.doctor.deleted_configuration import KillSwitchError, Switch
from webhook.inspect.doctor.rivals import Rival, rivals
from webhook.inspect.exported_policies import MUTATING
from webhook.inspect.installation import refuses_pods
from webhook.inspect.webhook_configurations_api import (
    CONFIGURATION_GROUP,
    CONFIGURATIONS,
    CONFIGURATIONS_RESOURCE,
)

_WATCHED_SECONDS = 10.0
"""How long the deletion is watched. Tools that watch the object create it again within seconds.

Tools that compare at an interval, such as Flux, need minutes, so the switch names them before."""
_POLL_SECONDS = 0.5

_FAIL_WARNING = (
    "WARNING: it restores failurePolicy Fail. Without a ready replica, the API server then refuses "
    "covered pods again. First check that replicas are ready."
)


def instructions(switch: Switch) -> Iterator[str]:
    """Yield the commands that take podsettle out of the path, and the way back.

    All lines together may go to a shell, so the way back consists of comments and of a file.
    """
    name, flags = switch.name, switch.flags
    yield "# These commands take podsettle out of the path of new pods. Running pods do not change."
    yield from (f"# WARNING: {warning}" for warning in switch.warnings)
    for rival in rivals(switch.configuration):
        yield f"# First: {rival.tool} could create the configuration again."
        yield flags.add_to(rival.suspension) if rival.is_command else f"#   {rival.suspension}"
    yield "# 1. Keep a record. `set -C` prevents that a record of an earlier use is overwritten."
    yield flags.add_to(
        f"(set -C; kubectl get mutatingwebhookconfiguration {name} -o yaml > {name}-record.yaml)"
    )
    yield f"#    {switch.file_name} is for the way back."
    yield f"(set -C; cat > {switch.file_name}) <<'EOF'"
    yield switch.record.rstrip("\n")
    yield "EOF"
    yield "# 2. Switch podsettle off. The API server stops calling it within a second."
    yield flags.add_to(f"kubectl delete mutatingwebhookconfiguration {name}")
    yield "# 3. See that it stays away: this prints nothing. A GitOps tool may take minutes to"
    yield "#    create it again, so look once more after its interval."
    yield f"sleep {_WATCHED_SECONDS:.0f}; {_look(switch)}"
    yield from (f"# {line}" for line in _native_policies(switch))
    yield from _way_back(switch)


def _look(switch: Switch) -> str:
    """Return the command that prints nothing while the configuration stays away."""
    return switch.flags.add_to(
        f"kubectl get mutatingwebhookconfiguration {switch.name} --ignore-not-found"
    )


def _native_policies(switch: Switch) -> Iterator[str]:
    """Yield that native policies stay in force, and the command that lists them."""
    yield "Policies that `podsettle export` wrote stay in force. This lists those that change pods:"
    selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
    yield f"  {switch.flags.add_to(f'kubectl get {MUTATING.plural} -l {selector}')}"


def _way_back(switch: Switch) -> Iterator[str]:
    yield "# The way back:"
    if refuses_pods(switch.configuration):
        yield f"# {_FAIL_WARNING}"
        yield from (f"#   {command}" for command in _replica_count(switch))
    if switch.installation is not None and switch.installation.helm_release:
        yield f"#   {switch.flags.add_to(helm_upgrade(switch.installation))}"
        yield "# The way back without Helm. podsettle adds its other webhooks and the caBundle:"
    yield f"#   {switch.flags.add_to(f'kubectl create -f {switch.file_name}')}"


def _replica_count(switch: Switch) -> Iterator[str]:
    """Yield the command that shows how many replicas are ready, if the Deployment is known."""
    # `kubectl rollout status` also succeeds if the Deployment is scaled to zero.
    if switch.installation is not None:
        namespace, name = switch.installation.namespace, switch.installation.name
        yield switch.flags.add_to(f"kubectl -n {namespace} get deployment {name}")


async def use(
    switch: Switch, server: ApiServer, directory: Path, *, are_suspended: bool = False
) -> Iterator[str]:
    """Delete the configuration, watch that it stays away, and return what was done.

    `are_suspended` says that the tools that could create it again are suspended. Raises
    KillSwitchError if such a tool is not, if a right is missing, if the record cannot be written,
    or if the configuration comes back.
    """
    found = list(rivals(switch.configuration))
    if found and not are_suspended:
        raise KillSwitchError(_refusal(found, switch.flags))
    rights = [
        Right(verb, CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE, name=switch.name)
        for verb in ("get", "delete")
    ]
    answers = await access_to(server, rights)
    if missing := [right for right in rights if answers[right] == "denied"]:
        needed = ", ".join(map(str, missing))
        raise KillSwitchError(f"needs: {needed}; nothing was changed")
    record = _write_record(switch, directory)
    path = f"{CONFIGURATIONS}/{switch.name}"
    # The precondition prevents the deletion of a configuration that was created in the meantime and
    # that no record holds.
    body = {"preconditions": {"uid": switch.configuration["metadata"]["uid"]}}
    await server.request("DELETE", path, body)
    if returned := await _watch(server, path):
        managers = {each.get("manager", "") for each in returned["metadata"]["managedFields"]}
        raise KillSwitchError(
            f"MutatingWebhookConfiguration {switch.name} was created again by "
            f"{', '.join(sorted(managers))}: suspend this tool, then use the switch again"
        )
    return _report(switch, record, found)


def _refusal(found: list[Rival], flags: ClusterFlags) -> str:
    lines = ["nothing was changed, because the configuration could be created again. First:"]
    for rival in found:
        suspension = flags.add_to(rival.suspension) if rival.is_command else rival.suspension
        lines += [f"  {rival.tool}:", f"    {suspension}"]
    return "\n".join([*lines, "Then add --suspended."])


def _report(switch: Switch, record: Path, found: list[Rival]) -> Iterator[str]:
    """Yield what was done, and the way back."""
    yield (
        f"MutatingWebhookConfiguration {switch.name} is deleted, and was not created again for "
        f"{_WATCHED_SECONDS:.0f} s."
    )
    if found:
        tools = ", ".join(rival.tool for rival in found)
        yield f"These may take minutes to create it again: {tools}. Look once more then:"
        yield _look(switch)
    yield from (f"WARNING: {warning}" for warning in switch.warnings)
    yield from _native_policies(switch)
    yield f"The record is {record}. The way back:"
    if refuses_pods(switch.configuration):
        yield _FAIL_WARNING
        yield from _replica_count(switch)
    if switch.installation is not None and switch.installation.helm_release:
        yield switch.flags.add_to(helm_upgrade(switch.installation))
        yield "or without Helm:"
    yield switch.flags.add_to(f"kubectl create -f {shlex.quote(str(record))}")


def _write_record(switch: Switch, directory: Path) -> Path:
    """Write the record to a file that does not exist yet. Raises KillSwitchError."""
    path = directory / switch.file_name
    for number in range(2, 100):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(switch.record)
        except FileExistsError:
            path = path.with_name(f"{switch.name}-webhook-{number}.yaml")
        except OSError as error:
            raise KillSwitchError(f"{path}: {error.strerror}; nothing was changed") from None
        else:
            return path
    raise KillSwitchError(f"{path} exists; nothing was changed")


async def _watch(
    server: ApiServer, path: str, now: Callable[[], float] = time.monotonic
) -> Json | None:
    """Return the configuration if it comes back, or None if it stays away."""
    deadline = now() + _WATCHED_SECONDS
    while now() < deadline:
        try:
            return await server.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
        await asyncio.sleep(_POLL_SECONDS)
    return None
