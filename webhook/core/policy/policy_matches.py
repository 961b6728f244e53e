"""Why each policy does or does not act on a pod, for people.

Decisions do not use this module. It explains a plan (`PolicyGroup.plan`), the coverage of a
namespace (`PolicySet.coverage_for`) and the outcomes of a decision.

The rule: of each policy that covers a pod, each remedy has an outcome with a reason, or the whole
pod has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import Annotated

from msgspec.structs import replace
from pydantic import Field

from webhook.core.cluster.view import Namespace
from webhook.core.constants import DNS_LABEL_NAME, LABEL_ENABLED, LABEL_POLICY, OWN_CONTAINERS
from webhook.core.labels import Labels
from webhook.core.pod import Container, Pod
from webhook.core.policy.coverage import Coverage, PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import Plan
from webhook.core.policy.selectors import first_unmet
from webhook.core.reasons import Outcome, Reason

MAX_MATCHES = 100
"""The maximum number of policies that are explained, because people read the list."""
_MAX_NAMES = 5
"""The maximum number of containers that a message names, because people read it."""


class Verdict(StrEnum):
    """What a policy does about a pod."""

    ACTS = "Acts"
    AUDITS = "Audits"
    """Its action is Audit, so it only reports what it would change."""
    SHADOWED = "Shadowed"
    """Other policies set all of its remedies first."""
    CHANGES_NOTHING = "ChangesNothing"
    """It covers the pod, but none of its remedies changes the pod, or would change it."""
    NOT_MATCHED = "NotMatched"


@dataclass(frozen=True, slots=True)
class ShadowedRemedy:
    """A remedy that the pod gets from another policy."""

    remedy: str
    by: Annotated[str, Field(description="The policy that sets the remedy first.")]


@dataclass(frozen=True, slots=True)
class SkippedRemedy:
    """A remedy that changes nothing on the pod, although no other policy sets it."""

    remedy: str
    reasons: Annotated[
        tuple[Reason, ...],
        Field(description="The reasons of its outcomes, or of the whole pod."),
    ]


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """What one policy does about the pod."""

    policy: str
    verdict: Annotated[
        Verdict,
        Field(
            description="`Audits`: it only reports what it would change. `Shadowed`: other "
            "policies set all of its remedies first. `ChangesNothing`: it covers the pod, and "
            "`skipped` says why it changes nothing, or would change nothing."
        ),
    ]
    acting: Annotated[
        tuple[str, ...],
        Field(description="The remedies that the pod gets from the policy, or would get from it."),
    ] = ()
    shadowed: tuple[ShadowedRemedy, ...] = ()
    skipped: tuple[SkippedRemedy, ...] = ()
    why: Annotated[
        str, Field(description="The first requirement that the pod does not meet, if any.")
    ] = ""


def match_policies(
    policies: PolicySet,
    namespace: Namespace,
    labels: Labels,
    own_namespace: str | None,
    outcomes: Iterable[Outcome],
) -> tuple[PolicyMatch, ...]:
    """Return what each policy does about a pod with these labels, at most MAX_MATCHES.

    `outcomes` are those of `shown_outcomes`.

    Policies that cover the pod come first. Both parts are in the order in which policies win.
    `own_namespace` is podsettle's own namespace. Callers whose labels come from clients pass a
    PolicySet with its own caches.
    """
    coverage = policies.coverage_for(namespace, own_namespace)
    plan = coverage.group.plan(labels)
    covering = frozenset(plan.policies if plan else ())
    in_namespace = frozenset(each.name for each in coverage.policies)
    by_remedy: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        by_remedy.setdefault((outcome.policy, outcome.remedy), []).append(outcome)
    # Two passes over the policies, because a sort of 1,000 policies for each pod takes 1 ms.
    ordered = chain(
        (each for each in policies.by_precedence if each.metadata.name in covering),
        (each for each in policies.by_precedence if each.metadata.name not in covering),
    )
    return tuple(
        _covering_match(policy, plan, by_remedy)
        if plan and policy.metadata.name in covering
        else PolicyMatch(
            policy.metadata.name,
            Verdict.NOT_MATCHED,
            why=_why_not(policy, coverage, in_namespace, namespace, labels, own_namespace),
        )
        for policy in islice(ordered, MAX_MATCHES)
    )


def shown_outcomes(
    coverage: Coverage, plan: Plan, pod: Pod, outcomes: Sequence[Outcome]
) -> Iterator[Outcome]:
    """Yield an outcome for each remedy of the first MAX_MATCHES policies of a plan, for people.

    `outcomes` are those of the decision that applied the plan to the pod. They come first. A
    decision evaluates policies that audit apart from the others. So a remedy that such a policy
    would apply is Shadowed here if the policy would still come second without `action: Audit`.

    A decision has no outcome for a remedy that another policy sets first, or that selects none of
    the pod's containers.
    """
    evaluated = {(outcome.policy, outcome.remedy) for outcome in outcomes}
    setters_of = {audits: _setters(plan, audits=audits) for audits in (False, True)}
    for outcome in outcomes:
        if outcome.reason is Reason.WOULD_APPLY:
            setter = setters_of[True][outcome.remedy]
            if setter != outcome.policy:
                message = _sets_first(setter, outcome.remedy, evaluated)
                yield replace(outcome, reason=Reason.SHADOWED, message=message, effect="")
                continue
        yield outcome
    covering = frozenset(plan.policies)
    explained = (each for each in coverage.policies if each.name in covering)
    for policy in islice(explained, MAX_MATCHES):
        for remedy, *_ in policy.remedies:
            if (policy.name, remedy.name) in evaluated:
                continue
            setter = setters_of[policy.audit][remedy.name]
            if setter != policy.name:
                reason, message = Reason.SHADOWED, _sets_first(setter, remedy.name, evaluated)
            else:
                reason, message = Reason.NO_CONTAINER_SELECTED, _selects_none(pod)
            yield Outcome(reason, remedy.name, policy.name, message=message)


def _setters(plan: Plan, *, audits: bool) -> Mapping[str, str]:
    """Return the name of the policy that sets each remedy, for a policy that audits or another one.

    Only for one that audits, the others that audit count too.
    """
    steps = (*plan.mutating, *plan.audited) if audits else plan.mutating
    setters: dict[str, str] = {}
    for step in sorted(steps, key=lambda step: step.policy.document.precedence):
        setters.setdefault(step.remedy.name, step.policy.name)
    return setters


def _sets_first(setter: str, remedy: str, evaluated: Collection[tuple[str, str]]) -> str:
    """Return the message for a remedy that a policy sets before another one.

    `evaluated` are the policies and remedies that concern the pod.
    """
    if (setter, remedy) in evaluated:
        return f"policy {setter} sets the remedy first"
    return f"policy {setter} has the remedy first, but selects none of the pod's containers"


def _selects_none(pod: Pod) -> str:
    """Return the message for a remedy that selects none of a pod's containers."""
    inits, containers = _names(pod.spec.init_containers), _names(pod.spec.containers)
    return (
        f"selects none of the pod's containers (init containers: {inits}; containers: {containers})"
    )


def _names(containers: Iterable[Container] | None) -> str:
    """Return the names of containers, as a list for people.

    A name that the API server would refuse is counted, but not quoted: it can be a megabyte long.
    """
    names = [each.name for each in containers or () if each.name not in OWN_CONTAINERS]
    listed = [*islice(filter(DNS_LABEL_NAME.fullmatch, names), _MAX_NAMES)]
    more = [f"{len(names) - len(listed)} more"] if len(names) > len(listed) else []
    return ", ".join([*listed, *more]) or "none"


def _covering_match(
    policy: SettlePolicy, plan: Plan, by_remedy: Mapping[tuple[str, str], list[Outcome]]
) -> PolicyMatch:
    """Return what a policy that covers the pod does.

    `by_remedy` has the outcomes of each policy and remedy. Those of the whole pod have neither, and
    count for each remedy that was not evaluated.
    """
    name, audits = policy.metadata.name, policy.spec.action == "Audit"
    setters = _setters(plan, audits=audits)
    acting, shadowed, skipped = [], [], []
    for remedy in policy.spec.settings():
        outcomes = by_remedy.get((name, remedy)) or by_remedy.get(("", ""), [])
        if any(each.changed or each.reason is Reason.WOULD_APPLY for each in outcomes):
            acting.append(remedy)
        elif any(each.reason is Reason.SHADOWED for each in outcomes):
            shadowed.append(ShadowedRemedy(remedy, setters[remedy]))
        else:
            reasons = dict.fromkeys(each.reason for each in outcomes)
            skipped.append(SkippedRemedy(remedy, tuple(reasons)))
    if acting:
        verdict = Verdict.AUDITS if audits else Verdict.ACTS
    else:
        verdict = Verdict.CHANGES_NOTHING if skipped else Verdict.SHADOWED
    return PolicyMatch(name, verdict, tuple(acting), tuple(shadowed), tuple(skipped))


def _why_not(
    policy: SettlePolicy,
    coverage: Coverage,
    in_namespace: Collection[str],
    namespace: Namespace,
    labels: Labels,
    own_namespace: str | None,
) -> str:
    """Return why a policy does not cover the pod, in a clause.

    `in_namespace` are the names of the policies that cover the namespace.
    """
    if coverage.disabled:
        return f'the namespace is labelled {LABEL_ENABLED}: "false"'
    if namespace.name == own_namespace:
        return "the namespace is podsettle's own"
    name, selector = policy.metadata.name, policy.spec.namespace_selector
    if name not in in_namespace:
        if selector is None:
            if namespace.labels.get(LABEL_POLICY) != name:
                return f"the namespace has no label {LABEL_POLICY}={name}"
        elif unmet := first_unmet(selector, namespace.labels):
            return f"the namespace {unmet}"
        return "the namespace belongs to the cluster, and namespaceSelector does not name it"
    return f"the pod {first_unmet(policy.spec.pod_selector, labels)}"
