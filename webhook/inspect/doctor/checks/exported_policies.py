"""The policies that `podsettle export` wrote: which are in force, and whether they are current."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.cluster.view_reader import ReadView
from webhook.core.admission.decider import OperatorSettings
from webhook.core.constants import ANNOTATION_EXPORTED_FROM, KIND
from webhook.core.export.native_policies import export
from webhook.core.export.origin import digest
from webhook.core.policy.model import SettlePolicy
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.cluster_flags import Command, kubectl, podsettle
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.model import Advice, Result, State, not_looked_at, ok, warning
from webhook.inspect.doctor.round_readings import Installed
from webhook.inspect.exported_policies import (
    MUTATING,
    VALIDATING,
    ExportedPolicies,
    ExportedPolicy,
    is_exported,
    read_exported,
    removal,
)


class Compared(NamedTuple):
    """What native policies are compared with."""

    read: ReadView
    is_webhook_registered: bool | None
    """Whether the API server is configured to call podsettle. None if that is not known."""


class FoundExported(NamedTuple):
    """The native policies that the user may read."""

    by_api: tuple[ExportedPolicies, ...]
    unread: tuple[Result, ...]
    """A result for each API whose policies must not be read."""

    @property
    def are_any(self) -> bool:
        """Whether there is a native policy, or a binding of one."""
        return any(each.policies or each.orphans for each in self.by_api)


async def find_exported(reader: ClusterReader) -> FoundExported:
    """Read all native policies. Raises ApiError and Unreachable."""
    found, unread = [], []
    for api in (MUTATING, VALIDATING):
        try:
            found.append(await read_exported(reader, api))
        except NotAllowedError as error:
            unread.append(not_looked_at(error))
    return FoundExported(tuple(found), tuple(unread))


async def _check_exported(installed: Installed) -> Sequence[Result]:
    found = await find_exported(installed.reader)
    if not found.are_any:
        absent = [
            f"the API server has no {each.api.kind}" for each in found.by_api if not each.is_served
        ]
        return found.unread or [ok("; ".join(["there is none", *absent]))]
    try:
        is_registered = await installed.configuration() is not None
    except NotAllowedError:
        is_registered = None
    compared = Compared(await installed.view(), is_registered)
    return [*judge_exported(found.by_api, compared), *found.unread]


def judge_exported(found: Sequence[ExportedPolicies], compared: Compared) -> Iterator[Result]:
    """Yield a result for each native policy, and for each binding without its policy."""
    settling = {
        policy.source
        for each in found
        for policy in each.policies
        if policy.api is MUTATING and policy.bindings
    }
    for each in found:
        for policy in each.policies:
            yield _Comparison(policy, compared, settling).result()
        for binding in each.orphans:
            yield warning(
                f"{each.api.kind}Binding {binding['metadata']['name']} was exported, and its "
                f"policy {binding['spec']['policyName']} does not exist",
                "Remove it.",
                removal([binding], each.api),
            )
    for unread in compared.read.unread:
        if unread.resource == "settlepolicies" and unread.is_denied:
            yield not_looked_at(NotAllowedError(unread.right))


class _Problem(NamedTuple):
    """Why a native policy needs attention."""

    clause: str
    advice: str = ""
    """What to do. Empty if a new export mends it."""


class _Comparison:
    """The comparison of one native policy with the cluster."""

    def __init__(
        self, policy: ExportedPolicy, compared: Compared, settling: Collection[str]
    ) -> None:
        """`settling` are the SettlePolicies of the native policies that change pods."""
        self._policy = policy
        self._read = compared.read
        policies = self._read.view.policies
        by_name = {each.metadata.name: each for each in policies.documents}
        self._source = by_name.get(policy.source)
        self._settles_by_webhook = compared.is_webhook_registered
        if self._settles_by_webhook and (
            self._source is None or self._source.spec.action != "Mutate"
        ):
            self._settles_by_webhook = False if self._read.has_read("settlepolicies") else None
        self._is_settled = policy.source in settling or self._settles_by_webhook is not False
        self._today: tuple[Json, ...] = ()
        """The documents that an export of today would write."""
        self._is_whole = True
        """Whether all of the SettlePolicy can be exported."""
        if self._source is not None:
            exported = export(
                policies,
                self._read.view,
                OperatorSettings(),
                api_version=policy.api_version,
                names=[policy.source],
                guard=policy.is_guard,
            )
            self._is_whole = not exported.not_native
            self._today = tuple(
                document
                for each in exported.policies
                for document in each.documents
                if document["kind"].startswith(policy.api.kind)
            )

    def result(self) -> Result:
        """Return whether the policy is in force and current, and how to remove it."""
        policy = self._policy
        in_force = self._not_in_force()
        problems = [*([in_force] if in_force else []), *self._problems()]
        clauses = [] if in_force else ["it is in force"]
        clauses += [each.clause for each in problems]
        if policy.api is MUTATING and self._settles_by_webhook:
            clauses.append("the webhook acts on the same pods, and adds what only it can do")
        text = f"{policy.title}, {policy.origin}: {'; '.join(clauses)}"
        if not problems:
            return Result(State.OK, text, Advice("This command removes it.", (policy.removal,)))
        sentences = dict.fromkeys(each.advice for each in problems if each.advice)
        commands = []
        if self._today and not all(each.advice for each in problems):
            sentences["Export it again, or remove it with the last command."] = None
            commands.append(self._new_export())
            if left := self._left_bindings():
                commands.append(removal(left, policy.api))
        return warning(text, " ".join(sentences) or "Remove it.", *commands, policy.removal)

    def _not_in_force(self) -> _Problem | None:
        if not self._policy.bindings:
            return _Problem("it is not in force, because it has no binding")
        missing = self._policy.missing_class(self._read.view.runtime_classes)
        if missing and self._read.has_read("runtimeclasses"):
            return _Problem(
                f"it is not in force, because RuntimeClass {missing} does not exist",
                "Create the RuntimeClass, or remove the policy.",
            )
        return None

    def _problems(self) -> Iterator[_Problem]:
        policy, source = self._policy, self._source
        if policy.is_guard and not self._is_settled:
            yield _Problem(
                "nothing settles the pods that it reports",
                "Put the SettlePolicy in force, or remove the guard.",
            )
        if not policy.source:
            yield _Problem(f"its annotation {ANNOTATION_EXPORTED_FROM} is missing", "Remove it.")
        elif source is not None:
            yield from self._changes(source)
        elif any(each.source == f"{KIND}/{policy.source}" for each in self._read.problems):
            yield _Problem(f"{KIND} {policy.source} is not accepted", "Correct the SettlePolicy.")
        elif self._read.has_read("settlepolicies"):
            yield _Problem(
                f"there is no {KIND} {policy.source}",
                "Remove it, unless its SettlePolicy is only in a file.",
            )

    def _changes(self, source: SettlePolicy) -> Iterator[_Problem]:
        """Yield how the policy differs from an export of today."""
        if digest(source, self._read.view.policies.by_precedence) != self._policy.digest:
            yield _Problem(
                f"{KIND} {source.metadata.name}, or one to which it yields, has changed since"
            )
        elif self._read.has_read("nodes") and self._read.has_read("runtimeclasses"):
            today, now = self._remedies_of_today(), self._policy.remedies
            if lost := [each for each in now if each not in today]:
                yield _Problem(f"an export of today would leave out {', '.join(lost)}")
            if gained := [each for each in today if each not in now]:
                yield _Problem(f"an export of today would add {', '.join(gained)}")
        if self._today and (left := self._left_bindings()):
            names = ", ".join(each["metadata"]["name"] for each in left)
            yield _Problem(f"an export of today would not write its binding {names}")

    def _remedies_of_today(self) -> list[str]:
        variables = self._today[0]["spec"]["variables"] if self._today else ()
        return [each["name"] for each in variables if each["name"] in REMEDIES]

    def _left_bindings(self) -> list[Json]:
        """Return the exported bindings that an export of today would not write."""
        names = {each["metadata"]["name"] for each in self._today if "policyName" in each["spec"]}
        return [
            each
            for each in self._policy.bindings
            if is_exported(each) and each["metadata"]["name"] not in names
        ]

    def _new_export(self) -> Command:
        policy = self._policy
        words = [policy.source]
        words += ["--api-version", policy.api_version] if policy.api_version != "v1" else []
        words += [] if self._is_whole else ["--partial"]
        words += ["--guard"] if policy.is_guard else []
        return podsettle("export", *words) + kubectl("apply", "-f", "-")


EXPORTED = DoctorCheck(
    "native policies",
    "whether the policies that podsettle export wrote are in force and current",
    _check_exported,
)
