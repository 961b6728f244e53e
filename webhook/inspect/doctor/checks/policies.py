"""The policies: whether podsettle accepts them, and whether their RuntimeClasses are usable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import KIND
from webhook.core.pod import SpecFields
from webhook.core.policy.model import SettlePolicy
from webhook.inspect.cluster_flags import kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.commands import only_report
from webhook.inspect.doctor.model import Result, fault, ok, unknown
from webhook.inspect.doctor.round_readings import Installed

_NODE_CONFIG_BY_CLASS = {
    "selinux-fix-runtime-class": "podsettle node-config crio --selinux",
    "overlay-volatile": "podsettle node-config containerd --volatile",
}
"""The commands that print a RuntimeClass of this name and the configuration of its nodes."""


async def _check_accepted(installed: Installed) -> list[Result]:
    view = await installed.require("settlepolicies")
    problems: dict[str, list[str]] = {}
    for problem in view.problems:
        kind, _, name = problem.source.partition("/")
        if kind == KIND:
            text = f"{problem.path}: {problem.message}" if problem.path else problem.message
            problems.setdefault(name, []).append(text)
    results = [
        fault(
            f"{KIND} {name} is not accepted: {'; '.join(texts)}",
            "Correct the policy. Until then, its last valid state stays in force while a replica "
            "knows it.",
            kubectl("edit", "settlepolicy", name),
        )
        for name, texts in sorted(problems.items())
    ]
    count = len(view.view.policies)
    if results:
        return results
    if not count:
        return [ok("there is no policy, so podsettle changes no pod")]
    return [ok("1 policy is accepted" if count == 1 else f"{count} policies are accepted")]


def acting(policies: Iterable[SettlePolicy]) -> list[SettlePolicy]:
    """Return the policies that change pods."""
    return [policy for policy in policies if policy.spec.action == "Mutate"]


async def _check_runtime_classes(installed: Installed) -> list[Result]:
    view = (await installed.require("settlepolicies", "runtimeclasses")).view
    policies = acting(view.policies.documents)
    results = [
        fault(
            f"{policy.metadata.name} names RuntimeClass {name}, which does not exist",
            f"The remedy is skipped. {_configure_nodes(name)} Until then, let the policy only "
            "report.",
            only_report(policy.metadata.name),
        )
        for policy in policies
        for name in policy.spec.runtime_classes()
        if name not in view.runtime_classes
    ]
    named = {name for policy in policies for name in policy.spec.runtime_classes()}
    return results or [ok(f"{len(named)} named, all exist" if named else "no policy names one")]


def _configure_nodes(class_name: str) -> str:
    command = _NODE_CONFIG_BY_CLASS.get(class_name)
    if command is None:
        return "Configure the nodes and create the RuntimeClass."
    return f"Configure the nodes and create the RuntimeClass: `{command}` prints both."


async def _check_handlers(installed: Installed) -> list[Result]:
    view = (await installed.require("settlepolicies", "runtimeclasses", "nodes")).view
    policies = acting(view.policies.documents)
    pairs = [
        (policy, view.runtime_classes[name])
        for policy in policies
        for name in policy.spec.runtime_classes()
        if name in view.runtime_classes
    ]
    results = [
        result
        for policy, runtime_class in pairs
        for result in judge_handler(policy, runtime_class, view.nodes.all)
    ]
    return results or [ok("a node has each handler" if pairs else "no policy names a RuntimeClass")]


def judge_handler(
    policy: SettlePolicy, runtime_class: RuntimeClassInfo, nodes: Iterable[Node]
) -> Iterator[Result]:
    """Yield a result unless a node that pods of the class can land on has its handler.

    It is a fault exactly if the webhook skips the RuntimeClass for a pod without a selector.
    """
    selector = runtime_class.node_selector.items()
    fitting = [node for node in nodes if selector <= node.labels.items()]
    handler = runtime_class.handler
    where = f"the nodes of RuntimeClass {runtime_class.name}"
    if Nodes(fitting).lacks_handler(handler, SpecFields()):
        yield fault(
            f"none of {where} has the handler {handler}",
            f"Pods of policy {policy.metadata.name} are left without the RuntimeClass. "
            f"{_configure_nodes(runtime_class.name)} Until then, let the policy only report.",
            only_report(policy.metadata.name),
        )
    elif not fitting:
        yield unknown(f"no known node has the labels of RuntimeClass {runtime_class.name}")
    elif not any(node.handlers is not None and handler in node.handlers for node in fitting):
        yield unknown(f"not all of {where} list their handlers, so {handler} may exist")


POLICIES = DoctorCheck("policies", "whether podsettle accepts every policy", _check_accepted)
RUNTIME_CLASSES = DoctorCheck(
    "runtime classes", "whether the RuntimeClasses of policies exist", _check_runtime_classes
)
HANDLERS = DoctorCheck(
    "handlers", "whether nodes have the handlers of these RuntimeClasses", _check_handlers
)
