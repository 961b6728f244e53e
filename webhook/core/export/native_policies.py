"""SettlePolicies as MutatingAdmissionPolicies and ValidatingAdmissionPolicies (KEP-3962, KEP-3488).

A SettlePolicy becomes one native policy with one mutation. The API server runs native policies in
no defined order, and leaves out one that fails under `failurePolicy: Ignore`, so several mutations
could settle half of a pod. Precedence between SettlePolicies becomes conditions: a remedy acts only
on pods for which no earlier policy sets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from webhook import __version__
from webhook.core.cel import any_of, indent, quote
from webhook.core.cluster.view import ClusterView
from webhook.core.constants import (
    ANNOTATION_EXPORTED_BY,
    ANNOTATION_EXPORTED_FROM,
    ANNOTATION_SKIP,
    GROUP,
    LABEL_ENABLED,
)
from webhook.core.defects.versions import Version
from webhook.core.export.annotations import (
    NativeStep,
    annotation_patch,
    if_acting,
    received_variables,
    written_variables,
)
from webhook.core.export.coverage import (
    covers,
    match_conditions,
    namespace_selectors,
    selector_document,
)
from webhook.core.export.precedence import first_policies
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, remedy_needs
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.native import Native, NativeRemedy, NotNativeError
from webhook.core.types import Json

API_GROUP = "admissionregistration.k8s.io"
API_VERSIONS: Mapping[str, Version] = {
    "v1": Version(1, 36),
    "v1beta1": Version(1, 34),
}
"""The versions of the API of MutatingAdmissionPolicies, and the first Kubernetes that has each."""

LABELS = {"app.kubernetes.io/managed-by": "podsettle-export"}
"""The labels of all native policies and bindings, by which they can be removed."""
_RULE: Json = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
_PARAM_KIND: Json = {"paramKind": {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}}


class LeftOut(NamedTuple):
    """A remedy of a SettlePolicy that is not in its native policy."""

    policy: str
    remedy: str
    why: str
    """A clause."""


class NodeDecision(NamedTuple):
    """The decision about a remedy with `when: NodesNeedIt`, which holds for all pods alike."""

    policy: str
    remedy: str
    is_needed: bool
    why: str
    """A clause."""


class NativePolicy(NamedTuple):
    """A SettlePolicy in the form that the API server evaluates."""

    source: SettlePolicy
    documents: tuple[Json, ...]
    """The policy and its bindings."""


class Export(NamedTuple):
    """The native policies of a set of SettlePolicies."""

    policies: tuple[NativePolicy, ...]
    not_native: tuple[LeftOut, ...]
    by_nodes: tuple[NodeDecision, ...]
    """The remedies about which the nodes decide. Those that no node needs are left out."""


def export(
    view: Snapshot,
    own_namespace: str | None = None,
    *,
    api_version: str = "v1",
    names: Iterable[str] | None = None,
    guard: bool = False,
) -> Export:
    """Return the native policies of the SettlePolicies with some names, or of all.

    `view` has all policies that are in force, because their precedence counts. Whether nodes need a
    remedy is decided by its nodes, for all pods alike. No pod of `own_namespace` is changed.

    With `guard`, return policies that only report covered pods that left admission unsettled.
    Policies with `action: Audit` settle no pods, so they have no guard and are left out.
    """
    chosen = None if names is None else frozenset(names)
    cluster = replace(view, server_version=view.server_version or API_VERSIONS[api_version])
    exported, not_native, by_nodes = [], [], []
    for policy in view.policies.by_precedence:
        name = policy.metadata.name
        if chosen is not None and name not in chosen:
            continue
        if guard and policy.spec.action == "Audit":
            not_native.append(LeftOut(name, "guard", "its `action: Audit` settles no pods"))
            continue
        needs, steps = remedy_needs(policy, all_nodes(view)), []
        for remedy, given in policy.spec.settings().items():
            need, form = needs[remedy], _form(remedy, given, cluster)
            if need is not None and getattr(given, "when", "Always") == "NodesNeedIt":
                is_needed = need.status != "False"
                if not is_needed or isinstance(form, NativeRemedy):
                    by_nodes.append(NodeDecision(name, remedy, is_needed, need.message))
                if not is_needed:
                    continue
            if isinstance(form, str):
                not_native.append(LeftOut(name, remedy, form))
            else:
                steps.append(NativeStep(name, remedy, REMEDIES[remedy].effect(given), form))
        if steps:
            audits = guard or policy.spec.action == "Audit"
            # ValidatingAdmissionPolicies are GA since 1.30.
            head = {
                "apiVersion": f"{API_GROUP}/{'v1' if audits else api_version}",
                "kind": "ValidatingAdmissionPolicy" if audits else "MutatingAdmissionPolicy",
                "metadata": {
                    "name": f"{name}.{GROUP}{'.guard' if guard else ''}",
                    "labels": LABELS,
                    "annotations": {
                        ANNOTATION_EXPORTED_FROM: name,
                        ANNOTATION_EXPORTED_BY: __version__,
                    },
                },
            }
            conditions = match_conditions(policy, own_namespace)
            variables = _variables(
                policy, steps, view.policies.by_precedence, own_namespace, audits=audits
            )
            given = policy.spec.settings()
            named = (REMEDIES[step.remedy].class_name(given[step.remedy]) for step in steps)
            class_name = next(filter(None, named), "")
            spec = {
                **(_PARAM_KIND if class_name else {}),
                "matchConstraints": _match_constraints(policy),
                "matchConditions": _named(conditions | {"something-to-do": _any_condition(steps)}),
                "variables": _named(variables),
                "failurePolicy": "Ignore",
                **(_validations(steps, guard) if audits else _mutations(steps)),
            }
            documents = ({**head, "spec": spec}, *_bindings(policy, head, class_name, audits))
            exported.append(NativePolicy(policy, documents))
    return Export(tuple(exported), tuple(not_native), tuple(by_nodes))


def _form(remedy: str, settings: Any, cluster: ClusterView) -> NativeRemedy | str:
    """Return a remedy in CEL, or why there is none, as a clause."""
    native = REMEDIES[remedy].native
    if not isinstance(native, Native):
        return native
    try:
        return native.form(settings, cluster)
    except NotNativeError as error:
        return str(error)


def _match_constraints(policy: SettlePolicy) -> Json:
    enabled = {"key": LABEL_ENABLED, "operator": "NotIn", "values": ["false"]}
    constraints: Json = {
        "resourceRules": [_RULE],
        "namespaceSelector": {"matchExpressions": [enabled]},
    }
    if selector := selector_document(policy.spec.pod_selector):
        constraints["objectSelector"] = selector
    return constraints


def _any_condition(steps: Sequence[NativeStep]) -> str:
    conditions = [step.form.condition for step in steps]
    if len(steps) > 1:
        conditions = [f"(\n  {indent(each)}\n)" for each in conditions]
    return "\n|| ".join(conditions)


def _named(expressions: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "expression": each} for name, each in expressions.items()]


def _variables(
    policy: SettlePolicy,
    steps: Sequence[NativeStep],
    by_precedence: Sequence[SettlePolicy],
    own_namespace: str | None,
    *,
    audits: bool,
) -> dict[str, str]:
    skip = f'object.metadata.?annotations[?"{ANNOTATION_SKIP}"].orValue("")'
    variables = {"skipped": f'{skip}.split(",").map(part, part.trim())'}
    if not audits:
        variables |= received_variables()
    first = first_policies(policy, by_precedence)
    covering = {each.metadata.name: each for step in steps for each in first[step.remedy]}
    names = _variable_names(covering)
    if covering:
        for key, source in (("labels", "object"), ("namespaceLabels", "namespaceObject")):
            variables[key] = f"{source}.metadata.?labels.orValue({{}})"
    for name, each in covering.items():
        variables[names[name]] = covers(each, policy, own_namespace)
    for step in steps:
        condition = step.form.condition
        if "||" in condition:
            condition = f"(\n  {indent(condition)}\n)"
        variables[step.remedy] = "\n&& ".join(
            [
                f"!({quote(step.remedy)} in variables.skipped)",
                *(f"!variables.{names[each.metadata.name]}" for each in first[step.remedy]),
                condition,
            ]
        )
        if step.form.warning and not audits:
            variables[f"{step.remedy}Warning"] = step.form.warning
    return variables if audits else variables | written_variables(steps)


def _variable_names(policies: Iterable[str]) -> dict[str, str]:
    """Return the names of the variables that say whether policies with some names cover the pod."""
    named: dict[str, str] = {}
    for name in policies:
        variable = "coveredBy" + "".join(part.capitalize() for part in re.split("[-.]", name))
        # Names such as a-b and a.b give the same variable.
        taken = variable in named.values()
        named[name] = f"{variable}_{len(named)}" if taken else variable
    return named


def _mutations(steps: Sequence[NativeStep]) -> Json:
    parts = [
        "(has(object.metadata.annotations) ? []\n"
        '  : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])'
    ]
    for step in steps:
        patch = "\n+ ".join(step.form.patch)
        if len(steps) > 1:
            patch = f"\n  {indent(patch)}"
        parts.append(if_acting(step, patch, steps))
    parts += annotation_patch()
    any_step = any_of(*(f"variables.{step.remedy}" for step in steps))
    expression = f"!{any_step} ? [] :\n" + "\n+ ".join(parts)
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]
    return {"reinvocationPolicy": "IfNeeded", "mutations": mutations}


def _validations(steps: Sequence[NativeStep], guard: bool) -> Json:
    """Return what the API server says about a pod that a remedy would change."""
    start = (
        "the pod is not settled: by remedy {remedy} of SettlePolicy {policy}"
        if guard
        else "SettlePolicy {policy}, action Audit: by its remedy {remedy}"
    )
    validations = [
        {
            "expression": f"!variables.{step.remedy}",
            "message": f"{start.format(remedy=step.remedy, policy=step.policy)}, the pod or "
            f"containers of it would be {step.effect}",
        }
        for step in steps
    ]
    return {"validations": validations}


def _bindings(policy: SettlePolicy, head: Json, class_name: str, audits: bool) -> Iterator[Json]:
    name = head["metadata"]["name"]
    for end, selector in namespace_selectors(policy).items():
        binding: Json = {"policyName": name}
        if audits:
            binding["validationActions"] = ["Audit", "Warn"]
        if class_name:
            # Without the class, the API server would refuse a pod that names it.
            binding["paramRef"] = {"name": class_name, "parameterNotFoundAction": "Allow"}
        binding["matchResources"] = {"namespaceSelector": selector}
        # Behind the group: in front of it, policies named ci and opt-in.ci would share a name.
        metadata = {"name": f"{name}.{end}" if end else name, "labels": LABELS}
        yield {**head, "kind": f"{head['kind']}Binding", "metadata": metadata, "spec": binding}
