"""The pages of faults: their policies and commands, on the pods of the public reports."""

from __future__ import annotations

import base64
import json
import os
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.both_ways import admit_both_ways
from tests.support.factories import IMAGE, SETTINGS, Json, container, node
from tests.support.factories import pod as pod_of
from tests.support.markdown import Page
from tests.support.paths import DATA, DOCS
from tests.support.process import podsettle
from tests.support.reviews import load_pod, review
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.versions import Runtime, parse_version


class Scenario(NamedTuple):
    """A page, a pod of its report, and what the page's policies do to it."""

    page: str
    pod: str
    """A fixture pod."""
    reasons: dict[str, str]
    """By remedy and container, such as `postInitSleep prepare`."""
    nodes: tuple[Json, ...] = ()
    namespace: Json | None = None
    policies: slice = slice(1)
    is_audit: bool = False
    """Whether the policies are as printed, with `action: Audit`."""
    with_fragment: bool = False
    """Whether the first policy has the fragment of the page, too."""
    is_previewed: bool = False
    """Whether the page shows a preview of the pod."""


def one_node(runtime: str, kubelet: str, labels: dict[str, str] | None = None) -> tuple[Json]:
    return ({"apiVersion": "v1", "kind": "Node", **node("a", runtime, kubelet, labels or {})},)


AFFECTED, NEXT = one_node("cri-o://1.33.12", "v1.33.12"), one_node("cri-o://1.35.2", "v1.35.2")
WORKER = one_node("cri-o://1.33.12", "v1.33.12", {"node-role.kubernetes.io/worker": ""})
TEKTON, CRON = "tekton-taskrun-sidecar", "openshift-cronjob-pvc"
OPENSHIFT = {
    "name": "sample-namespace",
    "labels": {"storage": "large"},
    "annotations": {"openshift.io/sa.scc.mcs": "s0:c26,c15"},
}
WRAPPED = dict.fromkeys(("postInitSleep prepare", "postInitSleep place-scripts"), "Applied")
RETRIED = {"retryInitExit255 prepare": "Applied"}
GATED = {"kubeletGate": "Applied"}
RELABEL = {"skipSELinuxRelabel": "Applied"}
# As in the report "containerd init container stuck in Running".
PROXIED = "proxied"
SCENARIOS = {
    "slow umount": Scenario(
        "slow-umount",
        PROXIED,
        {"runtimeClass": "Applied"},
        one_node("containerd://1.7.29", "v1.33.5", {"rootfs": "volatile"}),
        {"name": "ci", "labels": {"rootfs": "volatile"}},
        is_previewed=True,
    ),
    "relabelling": Scenario("selinux-relabel", CRON, RELABEL, WORKER, OPENSHIFT, is_previewed=True),
    "both SELinux remedies on Kubernetes 1.37": Scenario(
        "selinux-relabel",
        CRON,
        RELABEL | {"seLinuxChangePolicy": "Applied"},
        one_node("cri-o://1.37.0", "v1.37.0"),
        OPENSHIFT,
        with_fragment=True,
    ),
    "policies as printed": Scenario(
        "exit-255",
        TEKTON,
        dict.fromkeys(WRAPPED | RETRIED, "WouldApply"),
        NEXT,
        policies=slice(2),
        is_audit=True,
    ),
    "option A": Scenario("exit-255", TEKTON, WRAPPED, AFFECTED, is_previewed=True),
    "option B": Scenario("exit-255", TEKTON, RETRIED, NEXT, policies=slice(1, 2)),
    "both options": Scenario("exit-255", TEKTON, WRAPPED | RETRIED, NEXT, policies=slice(2)),
    "gate": Scenario("kubelet-gate", "woodpecker-step", GATED, is_previewed=True),
    "gate behind another init container": Scenario(
        "kubelet-gate", "woodpecker-plugin-init-permission", GATED, is_previewed=True
    ),
}


def pod_named(name: str) -> Json:
    if name == PROXIED:
        regular = [container("business", "/bin/serve"), container("agent", "/bin/agent")]
        return pod_of(container("init-proxy", "/bin/init-proxy"), containers=regular)
    return load_pod(DATA / "pods" / f"{name}.yaml")


def printed(page: Page, kind: str) -> list[Json]:
    """Return what the page's `podsettle node-config … -o KIND` print."""
    typed = [each for each in page.commands if each.whole and each.arguments[-1] == kind]
    return [yaml.safe_load(podsettle(*each.arguments).stdout) for each in typed]


def check_preview(page: Page, pod: Json) -> None:
    """Run the commands that the page recommends first. They print the lines that it shows."""
    env = {**os.environ, "PODSETTLE_MANIFESTS": "view.yaml"}
    for name in ("check", "preview"):
        typed = page.command(name)
        words = [IMAGE if word == "IMAGE" else word for word in typed.arguments]
        done = podsettle(*words, stdin=json.dumps(pod), env=env)
        assert done.returncode == 0, done.stderr
        assert typed.output or name == "check"
        lines = done.stdout.splitlines()
        for shown in typed.output:
            # An ellipsis stands for omitted text.
            pattern = ".*".join(map(re.escape, shown.split("…")))
            assert any(re.fullmatch(pattern, line) for line in lines), shown


@pytest.mark.parametrize("name", SCENARIOS)
def test_policies_of_a_page_act_on_the_pod_of_its_report(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = SCENARIOS[name]
    monkeypatch.chdir(tmp_path)
    page, pod = Page(DOCS / f"{case.page}.md"), pod_named(case.pod)
    policies = page.policies[case.policies]
    (tmp_path / page.command("check").arguments[1]).write_text(yaml.safe_dump_all(policies))
    if case.with_fragment:
        policies[0]["spec"].update(*page.fragments)
    objects = [*case.nodes, *printed(page, "runtimeclass")]
    if case.namespace:
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": case.namespace})
    for policy in policies:
        assert policy["spec"]["action"] == "Audit"
        if not case.is_audit:
            del policy["spec"]["action"]
    (tmp_path / "view.yaml").write_text(yaml.safe_dump_all(objects))
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    (cluster / "all.yaml").write_text(yaml.safe_dump_all([*objects, *policies]))
    source = ManifestsSource(cluster)
    source.refresh()
    assert not source.problems
    answer = admit_both_ways(json.dumps(review(pod)).encode(), source.view, SETTINGS)
    outcomes = answer.decision.outcomes
    assert {f"{o.remedy} {o.container}".strip(): o.reason for o in outcomes} == case.reasons
    assert "warnings" not in json.loads(answer.body)["response"]
    if case.is_previewed:
        check_preview(page, pod)


QUOTES = {
    "exit-255": [
        'init container failed, "prepare" exited with code 255',
        "Entrypoint initialization",
        "Failed to update container state for <container-id>: stdout: , stderr: ",
    ],
    "kubelet-gate": [
        'workflow finished with error Get "https://10.0.9.147:10250/containerLogs/...": remote '
        "error: tls: internal error"
    ],
    "selinux-relabel": [
        "Error: context deadline exceeded",
        "CreateContainerError",
        "requests that are timing out in CRI-O due to system load. Currently at stage",
    ],
    "slow-umount": [
        'msg="failed to delete task" error="context deadline exceeded"',
        "failed to stop container",
        "failed to load task for container: context deadline exceeded",
    ],
    "wait-and-logs": ["no terminated state found for container wp-XXX/wp-XXX"],
}


def test_pages_quote_the_messages_of_their_reports() -> None:
    for name, quotes in QUOTES.items():
        symptom = Page(DOCS / f"{name}.md").sections["Symptom"]
        assert [quote for quote in quotes if quote not in symptom] == [], name


def test_class_of_a_page_names_the_handler_of_its_machine_config() -> None:
    page = Page(DOCS / "selinux-relabel.md")
    (config,), (runtime_class,) = printed(page, "machineconfig"), printed(page, "runtimeclass")
    (file,) = config["spec"]["config"]["storage"]["files"]
    content = base64.b64decode(file["contents"]["source"].partition("base64,")[2]).decode()
    assert runtime_class["handler"] in tomllib.loads(content)["crio"]["runtime"]["runtimes"]
    for name in (config["metadata"]["name"], runtime_class["metadata"]["name"]):
        assert f"`{name}`" in page.sections["Node configuration"]


def test_page_names_the_first_releases_with_the_fix() -> None:
    text = Page(DOCS / "exit-255.md").sections["Node configuration"]
    named = re.findall(r"1\.3\d\.\d+", text)
    assert sorted(named) == ["1.33.13", "1.34.9", "1.35.3", "1.36.0"]
    (defect,) = (each for each in DEFECTS if each.id == "cri-o-9840")
    for version in filter(None, map(parse_version, named)):
        assert not defect.status_on(Runtime("cri-o", version), None).needs_remedy
        if version.patch:
            before = version._replace(patch=version.patch - 1)
            assert defect.status_on(Runtime("cri-o", before), None).needs_remedy
