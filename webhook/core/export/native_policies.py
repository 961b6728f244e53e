"""SettlePolicies as MutatingAdmissionPolicies and ValidatingAdmissionPolicies (KEP-3962, KEP-3488).

A SettlePolicy becomes one native policy with one mutation. The API server runs native policies in
no defined order, and leaves out one that fails under `failurePolicy: Ignore`, so several mutations
could settle half of a pod. Precedence between SettlePolicies becomes conditions: a remedy acts only
on pods for which no earlier policy sets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.core.admission.decider import OperatorSettings
from webhook.core.cel import any_of, indent, quote
from webhook.core.cluster.helper_version import helper_version
from webhook.core.cluster.view import ClusterFacts, ClusterView
from webhook.core.constants import ANNOTATION_SKIP, GROUP, LABEL_ENABLED
from webhook.core.defects.versions import Version
from webhook.core.export.annotations import (
    NativeStep,
    annotation_patch,
    if_acting,
    received_variables,
    subject_of,
    written_variables,
)
from webhook.core.export.coverage import (
    covers,
    match_conditions,
    namespace_selectors,
    selector_document,
)
from webhook.core.export.origin import first_policies, origin_annotations
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
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


class LeftOut(NamedTuple):
    """A part of a SettlePolicy that is not in its native policy."""

    policy: str
    part: str
    """The name of a remedy, or `imageConfig`."""
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
    """What no native policy can do."""
    by_nodes: tuple[NodeDecision, ...]
    """The remedies about which the nodes decide. Those that no node needs are left out."""


def export(
    policies: PolicySet,
    view: ClusterView,
    settings: OperatorSettings,
    *,
    api_version: str = "v1",
    names: Iterable[str] | None = None,
    guard: bool = False,
) -> Export:
    """Return the native policies of the SettlePolicies with some names, or of all.

    `policies` are all that are in force, because their precedence counts. Whether nodes need a
    remedy is decided by the nodes of `view`, for all pods alike.

    With `guard`, return policies that only report covered pods that left admission unsettled.
    Policies with `action: Audit` settle no pods, so they have no guard.
    """
    chosen = None if names is None else frozenset(names)
    cluster = ClusterFacts(
        view.nodes,
        view.runtime_classes,
        view.server_version or API_VERSIONS[api_version],
        settings.linger_image,
        helper_version(settings.linger_image, settings.linger_version),
        settings.docs_url,
    )
    exported, not_native, by_nodes = [], [], []
    for policy in policies.by_precedence:
        if chosen is not None and policy.metadata.name not in chosen:
            continue
        if guard and policy.spec.action == "Audit":
            continue
        forms: dict[str, NativeRemedy] = {}
        needs = remedy_needs(policy, all_nodes(view))
        name = policy.metadata.name
        if policy.spec.image_config.rules is not None and not guard:
            why = "a native policy cannot ask a registry for the entrypoint of an image"
            not_native.append(LeftOut(name, "imageConfig", why))
        for remedy, given in policy.spec.settings().items():
            need = needs[remedy]
            form = _form(remedy, given, cluster, guard)
            if need is not None and getattr(given, "when", "Always") == "NodesNeedIt":
                is_needed = need.status != "False"
                if not is_needed or isinstance(form, NativeRemedy):
                    by_nodes.append(NodeDecision(name, remedy, is_needed, need.message))
                if not is_needed:
                    continue
            if isinstance(form, str):
                not_native.append(LeftOut(name, remedy, form))
            else:
                forms[remedy] = form
        if forms:
            writer = _Writer(policy, forms, policies.by_precedence, settings.own_namespace, guard)
            exported.append(NativePolicy(policy, tuple(writer.documents(api_version))))
    return Export(tuple(exported), tuple(not_native), tuple(by_nodes))


def _form(remedy: str, settings: Any, cluster: ClusterFacts, guard: bool) -> NativeRemedy | str:
    """Return a remedy in CEL, or why there is none, as a clause."""
    native = REMEDIES[remedy].native
    if not isinstance(native, Native):
        return native
    try:
        return native.form(native.guarded(settings) if guard else settings, cluster)
    except NotNativeError as error:
        return str(error)


class _Writer:
    """Writes the documents of one native policy."""

    def __init__(
        self,
        policy: SettlePolicy,
        forms: Mapping[str, NativeRemedy],
        by_precedence: tuple[SettlePolicy, ...],
        own_namespace: str | None,
        guard: bool,
    ) -> None:
        self._policy = policy
        self._forms = forms
        self._own_namespace = own_namespace
        self._guard = guard
        self._origin = origin_annotations(policy, by_precedence)
        name, given = policy.metadata.name, policy.spec.settings()
        self._steps = [
            NativeStep(name, remedy, REMEDIES[remedy].effect(given[remedy]), form)
            for remedy, form in forms.items()
        ]
        first = first_policies(policy, by_precedence)
        self._before = {remedy: first[remedy] for remedy in forms}
        """For each remedy, the policies that come first if they cover the pod."""
        self._covering = _variable_names(
            {e.metadata.name: e for v in self._before.values() for e in v}
        )

    def documents(self, api_version: str) -> Iterator[Json]:
        """Yield the policy and its bindings."""
        policy = self._policy
        audits = policy.spec.action == "Audit" or self._guard
        kind = "ValidatingAdmissionPolicy" if audits else "MutatingAdmissionPolicy"
        # ValidatingAdmissionPolicies are GA since 1.30.
        head = {"apiVersion": f"{API_GROUP}/{'v1' if audits else api_version}"}
        name = f"{'guard.' if self._guard else ''}{policy.metadata.name}.{GROUP}"
        spec: Json = {}
        classes = policy.spec.runtime_classes() if self._uses_class else ()
        if classes:
            spec["paramKind"] = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
        spec["matchConstraints"] = self._match_constraints()
        spec["matchConditions"] = [
            {"name": key, "expression": expression}
            for key, expression in self._match_conditions().items()
        ]
        spec["variables"] = [
            {"name": key, "expression": expression}
            for key, expression in self._variables(audits).items()
        ]
        spec["failurePolicy"] = "Ignore"
        if audits:
            spec["validations"] = self._validations()
        else:
            spec["reinvocationPolicy"] = "IfNeeded"
            patch = {"expression": self._patch()}
            spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": patch}]
        metadata: Json = {"name": name, "labels": LABELS, "annotations": self._origin}
        yield {**head, "kind": kind, "metadata": metadata, "spec": spec}
        for end, selector in namespace_selectors(policy).items():
            binding: Json = {"policyName": name}
            if audits:
                binding["validationActions"] = ["Audit", "Warn"]
            if classes:
                # Without the class, the API server would refuse a pod that names it.
                binding["paramRef"] = {"name": classes[0], "parameterNotFoundAction": "Allow"}
            binding["matchResources"] = {"namespaceSelector": selector}
            metadata = {"name": f"{end}.{name}" if end else name, "labels": LABELS}
            yield {**head, "kind": f"{kind}Binding", "metadata": metadata, "spec": binding}

    @property
    def _uses_class(self) -> bool:
        given = self._policy.spec.settings()
        return any(REMEDIES[remedy].class_name(given[remedy]) for remedy in self._forms)

    def _match_constraints(self) -> Json:
        enabled = {"key": LABEL_ENABLED, "operator": "NotIn", "values": ["false"]}
        constraints: Json = {
            "resourceRules": [_RULE],
            "namespaceSelector": {"matchExpressions": [enabled]},
        }
        if selector := selector_document(self._policy.spec.pod_selector):
            constraints["objectSelector"] = selector
        return constraints

    def _match_conditions(self) -> dict[str, str]:
        conditions = match_conditions(self._policy, self._own_namespace)
        wanted = [form.condition for form in self._forms.values()]
        if len(wanted) > 1:
            wanted = [f"(\n  {indent(each)}\n)" for each in wanted]
        return {**conditions, "something-to-do": "\n|| ".join(wanted)}

    def _variables(self, audits: bool) -> dict[str, str]:
        skip = f'object.metadata.?annotations[?"{ANNOTATION_SKIP}"].orValue("")'
        variables = {"skipped": f'{skip}.split(",").map(part, part.trim())'}
        if not audits:
            variables |= received_variables()
        if self._covering:
            for key, source in (("labels", "object"), ("namespaceLabels", "namespaceObject")):
                variables[key] = f"{source}.metadata.?labels.orValue({{}})"
        for key, policy in self._covering.items():
            variables[key] = covers(policy)
        names = {policy.metadata.name: key for key, policy in self._covering.items()}
        for step in self._steps:
            remedy, form = step.remedy, step.form
            first = [names[each.metadata.name] for each in self._before[remedy]]
            condition = form.condition
            if "||" in condition:
                condition = f"(\n  {indent(condition)}\n)"
            variables[remedy] = "\n&& ".join(
                [
                    f"!({quote(remedy)} in variables.skipped)",
                    *(f"!variables.{each}" for each in first),
                    condition,
                ]
            )
            if audits:
                continue
            if form.containers:
                variables[f"{remedy}Before"] = f"{step.entry} in variables.appliedBefore"
            variables |= form.variables
            if form.containers:
                variables[f"{remedy}Containers"] = form.containers
                variables[f"{remedy}Subject"] = subject_of(f"variables.{remedy}Containers")
            if form.warning:
                variables[f"{remedy}Warning"] = form.warning
        return variables if audits else {**variables, **written_variables(self._steps)}

    def _patch(self) -> str:
        parts = [
            "(has(object.metadata.annotations) ? []\n"
            '  : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])'
        ]
        for step in self._steps:
            patch = "\n+ ".join(step.form.patch)
            if len(self._steps) > 1:
                patch = f"\n  {indent(patch)}"
            parts.append(if_acting(step, patch, self._steps))
        parts += annotation_patch()
        any_step = any_of(*(f"variables.{step.remedy}" for step in self._steps))
        return f"!{any_step} ? [] :\n" + "\n+ ".join(parts)

    def _validations(self) -> list[Json]:
        return [
            {"expression": f"!variables.{step.remedy}", "message": self._message(step)}
            for step in self._steps
        ]

    def _message(self, step: NativeStep) -> str:
        """Return what the API server says about a pod that a remedy would change."""
        would_be = f"the pod or containers of it would be {step.effect}"
        if self._guard:
            return (
                f"the pod is not settled: by remedy {step.remedy} of SettlePolicy {step.policy}, "
                f"{would_be}"
            )
        return f"SettlePolicy {step.policy}, action Audit: by its remedy {step.remedy}, {would_be}"


def _variable_names(policies: Mapping[str, SettlePolicy]) -> dict[str, SettlePolicy]:
    """Return policies by the names of the variables that say whether they cover the pod."""
    named: dict[str, SettlePolicy] = {}
    for name, policy in policies.items():
        variable = "coveredBy" + "".join(part.capitalize() for part in re.split("[-.]", name))
        # Names such as a-b and a.b give the same variable.
        named[variable if variable not in named else f"{variable}_{len(named)}"] = policy
    return named
