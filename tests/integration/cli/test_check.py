"""Tests of `podsettle check`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import yaml

from tests.support.factories import policy_document
from tests.support.paths import EXAMPLES
from tests.support.process import podsettle
from webhook.core.defects.catalogue import DEFECTS

BROKEN = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: one}
spec:
  remedies:
    postInitSleep:
      minLifetme: 500ms
      sleep: 10
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: two}
spec:
  remedies:
    runtimeClass: {name: a}
    skipSELinuxRelabel:
      runtimeClassName: b
"""


def test_examples_have_no_problem() -> None:
    count = len(list(yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text(encoding="utf-8"))))
    done = podsettle("check", EXAMPLES)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"podsettle: {count} policies are fine\n"
    first, *needs, about_export = podsettle("check", "-v", EXAMPLES).stderr.splitlines()
    assert f"{first}\n" == done.stderr
    assert "can print the whole of large-volumes, volatile-rootfs, " in about_export
    assert "and cannot print tekton-on-crio/postInitSleep, " in about_export
    assert len(needs) == count
    assert needs[0].startswith("podsettle: tekton-on-crio: still needed: ")
    affected = "worker-1 (cri-o 1.33.12), worker-4 (cri-o 1.35.2)"
    assert f"2 of 4 nodes still run an affected CRI-O: {affected}" in needs[0]


def test_every_problem_has_file_line_and_path(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(BROKEN)
    done = podsettle("check", file)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == sorted([
        f"{file}:7: spec.remedies.postInitSleep.minLifetme: unknown key; did you mean minLifetime?",
        f"{file}:8: spec.remedies.postInitSleep.sleep: 10 is not a duration: "
        "write it as 10ms, 1.5s or 1m30s",
        f"{file}:17: spec.remedies.skipSELinuxRelabel.runtimeClassName: a pod has only one "
        "RuntimeClass: this is b, but runtimeClass.name is a",
    ])  # fmt: skip
    assert done.stderr == "podsettle: 3 problems; 0 policies are fine\n"


BAD = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: a}
spec:
  action: Nope
  remedies: {}
  priority: high
"""


def test_pipelines_get_problems_in_the_order_of_lines(tmp_path: Path) -> None:
    bad, good = tmp_path / "b d.yaml", tmp_path / "good.yaml"
    bad.write_text(BAD)
    good.write_text(yaml.safe_dump(policy_document("fine")))
    outputs = {
        output: podsettle("check", bad, good, "-o", output)
        for output in ("text", "json", "yaml", "sarif", "junit")
    }
    assert {each.returncode for each in outputs.values()} == {1}
    lines = [5, 6, 7]
    text = outputs["text"].stdout.splitlines()
    assert [int(line.split(":")[1]) for line in text] == lines
    problems = json.loads(outputs["json"].stdout)
    assert [each["line"] for each in problems] == lines
    assert yaml.safe_load(outputs["yaml"].stdout) == problems
    (run,) = json.loads(outputs["sarif"].stdout)["runs"]
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [each["region"]["startLine"] for each in places] == lines
    assert {each["artifactLocation"]["uri"] for each in places} == {f"file://{tmp_path}/b%20d.yaml"}
    assert {each["ruleId"] for each in run["results"]} == {
        each["id"] for each in run["tool"]["driver"]["rules"]
    }
    (suite,) = ElementTree.fromstring(outputs["junit"].stdout)
    assert {name: suite.get(name) for name in ("tests", "failures")} == {
        "tests": "2",
        "failures": "1",
    }
    failed, passed = suite
    assert [len(failed), len(passed)] == [1, 0]
    assert (failed[0].text or "").splitlines() == text


def test_second_policy_with_the_same_name_is_a_problem_and_the_first_is_fine(
    tmp_path: Path,
) -> None:
    text = (EXAMPLES / "policies.yaml").read_text()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text.partition("---")[0])
    done = podsettle("check", tmp_path)
    assert done.returncode == 1
    assert done.stdout == (
        f"{tmp_path / 'b.yaml'}:3: a second SettlePolicy named 'tekton-on-crio'; "
        f"the one at {tmp_path / 'a.yaml'}:3 counts\n"
    )
    assert done.stderr == "podsettle: 1 problem; 1 policy is fine\n"


def test_directory_without_policies_is_a_problem(tmp_path: Path) -> None:
    done = podsettle("check", tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{tmp_path}: no SettlePolicy found (*.yaml, ")


def test_missing_file_exits_with_2(tmp_path: Path) -> None:
    done = podsettle("check", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "no such file" in done.stderr.lower()


HEAD = "apiVersion: podsettle.dev/v1alpha1\nkind: SettlePolicy\nmetadata: {name: one}\nspec:\n"


def notes_of(*arguments: str | Path, stdin: str | None = None) -> list[str]:
    """Return what the author of a policy should act on."""
    done = podsettle("check", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, "")
    first, *notes = done.stderr.splitlines()
    assert first == "podsettle: 1 policy is fine"
    return [note.removeprefix("podsettle: ") for note in notes]


def details_of(*arguments: str | Path, stdin: str | None = None) -> list[str]:
    """Return what only -v prints."""
    notes, details = notes_of(*arguments, stdin=stdin), notes_of("-v", *arguments, stdin=stdin)
    about_export = details.pop()
    assert about_export.startswith("podsettle export can")
    assert {*notes} <= {*details}
    return [each for each in details if each not in notes]


def test_registries_without_lookup_registry_give_a_note() -> None:
    text = HEAD + "  imageConfig: {registries: [quay.io]}\n  remedies: {postInitSleep: {}}\n"
    (note,) = notes_of("-", stdin=text)
    assert note == (
        "one: registries and mirrors of imageConfig have no effect with lookup Never: "
        "set lookup: Registry"
    )
    assert notes_of("-", stdin=text.replace("{reg", "{lookup: Registry, reg")) == []


def test_short_minimum_lifetime_gives_a_note_with_the_measured_share() -> None:
    text = HEAD + "  remedies: {postInitSleep: {minLifetime: 100ms}}\n"
    (note,) = notes_of("-", stdin=text)
    assert "minLifetime 100ms is short" in note
    assert "1.7 %" in note
    # docs/exit-255.md: 250 ms lost an exit code on a busy node.
    assert "250 ms none of 840, but 1 of 34 on a busy node" in note
    assert notes_of("-", stdin=text.replace("100ms", "250ms")) == []


def test_limits_for_servers_without_a_look_up_of_images_give_a_note() -> None:
    text = HEAD + "  remedies: {openFiles: {soft: 1023}}\n"
    low, skipped = notes_of("-", stdin=text)
    assert "soft 1023 is lower than 1,024" in low
    assert "openFiles skips containers without a command (NoCommand)" in skipped
    looked_up = "  imageConfig: {lookup: Registry, registries: [quay.io]}\n"
    assert notes_of("-", stdin=text.replace("1023", "1024") + looked_up) == []


def test_runtime_class_missing_from_the_manifests_gives_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(HEAD + "  remedies: {runtimeClass: {name: fast}}\n")
    assert notes_of(tmp_path) == []
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    (tmp_path / "b.json").write_text(json.dumps({**made, "metadata": {"name": "slow"}}))
    assert notes_of(tmp_path) == ["one: RuntimeClass 'fast' is not among the manifests"]


def test_manifests_without_nodes_give_no_note(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(HEAD + "  remedies: {postInitSleep: {}}\n")
    assert notes_of(file) == notes_of(tmp_path) == []


def node_text(name: str, runtime: str, kubelet: str = "v1.34.0") -> str:
    info = {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}
    metadata = {"name": name, "labels": {"pool": name}}
    node = {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "status": {"nodeInfo": info}}
    return f"---\n{json.dumps(node)}\n"


def affected_software(remedy: str) -> str:
    """What nodes run that need the remedy. A new file in the catalogue may add to it."""
    return " or ".join(dict.fromkeys(each.runs for each in DEFECTS if remedy in each.remedies))


def test_policy_is_no_longer_needed_if_all_nodes_have_the_fix() -> None:
    text = HEAD + "  remedies: {postInitSleep: {}}\n"
    (note,) = notes_of("-", stdin=text + node_text("a", "cri-o://1.36.0"))
    software = affected_software("postInitSleep")
    assert "an affected CRI-O" in software
    assert note.startswith(f"one: no longer needed: None of 1 nodes runs {software}")
    assert note.endswith(". The policy can be removed.")
    (note,) = details_of("-", stdin=text + node_text("a", "cri-o://1.33.12"))
    assert note == (
        "one: still needed: 1 of 1 nodes still runs an affected CRI-O: a (cri-o 1.33.12)."
    )


def test_later_releases_than_podsettle_knows_are_named() -> None:
    text = HEAD + "  remedies: {postInitSleep: {}}\n"
    nodes = node_text("a", "cri-o://1.33.12") + node_text("b", "cri-o://1.99.0")
    assert (
        "cri-o-9840: not affected, unverified: b (cri-o 1.99.0); this podsettle does not know "
        "these releases yet"
    ) in details_of("-", stdin=text + nodes)
    gate = HEAD + "  remedies: {kubeletGate: {}}\n"
    assert len(details_of("-", stdin=gate + nodes)) == 1


def test_volumes_that_nodes_do_not_show_leave_the_need_open() -> None:
    text = HEAD + "  remedies: {skipSELinuxRelabel: {}}\n"
    (note,) = details_of("-", stdin=text + node_text("a", "cri-o://1.36.0", "v1.37.0"))
    assert note.startswith("one: perhaps still needed: On 1 of 1 nodes, CRI-O relabels only ")


def test_only_nodes_with_the_labels_of_the_runtime_class_count_for_its_policy(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy.yaml").write_text(
        HEAD + "  remedies: {runtimeClass: {name: fast}, postInitSleep: {}}\n"
    )
    fast = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "fast"},
        "handler": "runc",
        "scheduling": {"nodeSelector": {"pool": "new"}},
    }
    (tmp_path / "cluster.yaml").write_text(
        json.dumps(fast)
        + "\n"
        + node_text("old", "cri-o://1.33.12")
        + node_text("new", "cri-o://1.36.0")
    )
    (note,) = details_of(tmp_path)
    software = affected_software("postInitSleep")
    assert f"postInitSleep: none of 1 nodes of RuntimeClass fast runs {software}" in note
    (tmp_path / "cluster.yaml").write_text(
        json.dumps(fast) + "\n" + node_text("old", "cri-o://1.33.12")
    )
    assert (
        "one: RuntimeClass 'fast': no known node has the labels of the class (pool=new), so the "
        "pod waits for one"
    ) in notes_of(tmp_path)
    (tmp_path / "cluster.yaml").write_text(json.dumps(fast))
    assert "no known node" not in "".join(notes_of(tmp_path)), "nodes may not be in the manifests"


def test_remedy_that_an_earlier_policy_sets_for_the_same_pods_gives_a_note(tmp_path: Path) -> None:
    text = HEAD + "  namespaceSelector: {}\n  remedies: {postInitSleep: {}}\n"
    narrow = text.replace("{}\n", "{matchLabels: {team: a}}\n", 1).replace("name: one", "name: two")
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(narrow)
    done = podsettle("check", tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines()[1] == (
        "podsettle: two: postInitSleep never acts, because one sets it first for the same pods: "
        "raise the priority of the policy, or narrow its selectors"
    )
    (tmp_path / "b.yaml").write_text(narrow + "  priority: 1\n")
    assert "never acts" not in podsettle("check", tmp_path).stderr


def test_checked_policy_is_compared_with_the_manifests_that_an_option_names(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(HEAD + "  remedies: {runtimeClass: {name: fast}}\n")
    notes = notes_of("--manifests", EXAMPLES, "-n", "no-such", file)
    assert f"one: RuntimeClass 'fast' is not in {EXAMPLES}" in notes
    assert f"namespace 'no-such' is not in {EXAMPLES}" in notes
    assert not any("tekton-on-crio" in note for note in notes)
