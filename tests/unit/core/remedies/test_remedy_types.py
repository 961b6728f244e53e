"""Tests that the type check refuses remedies that read what the decision cache omits.

It also refuses remedies that change facts, because the self-check of a patch compares with them.
"""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

from tests.support.paths import ROOT

REMEDY = """
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from webhook.core.patch.builder import PodPatch
from webhook.core.pod import Pod
from webhook.core.decision_input import PodFacts
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy


def apply(
    pod: PodFacts, settings: Literal["On"], context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    for container in (*(pod.init_containers or ()), *(pod.containers or ())):
        if container.name == "a" and container.command:
            yield Outcome(Reason.NOT_NEEDED, container=container.name)
    if context.namespace.is_system or pod.label_count > 3 or pod.host_network:
        return
    if any(node.labels.get("disk") == "ssd" for node in context.cluster.nodes.all):
        patch.annotate("podsettle.dev/applied", settings)
        yield Outcome(Reason.APPLIED, changed=True)


GOOD = Remedy(
    name="good", description="", settings=Any, apply=apply, own_reasons=frozenset(), effect=str,
    proposed_settings=None, native="it does nothing",
)
Remedy(  # refused
    name="silent", description="", settings=Any, apply=apply, own_reasons=frozenset(), effect=str,
    proposed_settings=None,
)


def reads_too_much(
    pod: PodFacts, settings: Literal["On"], context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    for container in pod.containers or ():
        print(container.image)  # refused
        print(container.args)  # refused
        print(container.env)  # refused
        print(container.volume_mounts)  # refused
    print(pod.labels)  # refused
    print(pod.name)  # refused
    print(pod.metadata.name)  # refused
    print(pod.spec)  # refused
    print(pod.service_account_name)  # refused
    print(pod.image_pull_secrets)  # refused
    print(pod.volumes)  # refused
    yield Outcome(Reason.APPLIED, message=context.namespace.name)  # refused
    print(context.namespace.labels)  # refused
    print(context.view.namespace("x"))  # refused
    print(context.request)  # refused
    print(context.policies)  # refused


def changes_facts(
    pod: PodFacts, settings: Literal["On"], context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    for container in pod.containers or ():
        if container.command:
            container.command.append("x")  # refused
            container.command[0] = "x"  # refused
        container.name = "x"  # refused
    if pod.annotations:
        pod.annotations["x"] = "x"  # refused
    yield from ()


def takes_the_pod(
    pod: Pod, settings: Literal["On"], context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    yield from ()


Remedy(
    name="",
    description="",
    settings=Any,
    apply=takes_the_pod,  # refused
    own_reasons=frozenset(),
    effect=str,
    proposed_settings=None,
    native="it does nothing",
)
"""


ERRORS = ("[attr-defined]", "[arg-type]", "[call-arg]", "[index]", "[misc]")


def test_remedy_that_reads_what_the_cache_omits_or_lacks_a_native_form_does_not_type_check(
    tmp_path: Path,
) -> None:
    file = tmp_path / "new_remedy.py"
    file.write_text(REMEDY)
    config = ROOT / "pyproject.toml"
    output, problems, _ = api.run(["--config-file", str(config), "--no-error-summary", str(file)])
    # mypy's cache repeats the messages of an earlier run, with the directory of that run.
    found = {
        int(match[1]): match[2]
        for match in re.finditer(rf"^.*/{re.escape(file.name)}:(\d+): error: (.*)$", output, re.M)
    }
    lines = REMEDY.splitlines()
    wanted = [number for number, line in enumerate(lines, 1) if line.endswith("# refused")]
    assert sorted(found) == wanted, output + problems
    for number, message in found.items():
        assert message.endswith(ERRORS), (lines[number - 1], message)
