"""The command `podsettle scan` on the dump in examples/scan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.support.paths import ROOT
from webhook.cli import main

COMMAND = ["scan", "--manifests", "examples/scan"]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("options", ["", " -o policy"])
def test_page_shows_what_the_command_prints(options: str) -> None:
    result = CliRunner().invoke(main, [*COMMAND, *options.split()])
    assert result.exit_code == 1
    page = (ROOT / "docs" / "scan.md").read_text()
    command = f"$ podsettle scan --manifests examples/scan{options}\n"
    block = page.partition(command)[2].partition("```")[0]
    assert block
    printed = iter(result.stdout.splitlines())
    for line in block.splitlines():
        # The page leaves out parts of the output.
        assert line == "…" or line in printed, line


def test_name_that_no_object_can_have_is_not_printed(tmp_path: Path) -> None:
    dump = (ROOT / "examples" / "scan" / "cluster.yaml").read_text()
    (tmp_path / "dump.yaml").write_text(dump.replace("name: build-7-pod", "name: --kubeconfig=x"))
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path), "-o", "name"])
    name = f"pod/report-28285183-tzmt2 -n ci --manifests {tmp_path}\n"
    assert (result.exit_code, result.stdout) == (1, name)


def test_wide_output_has_the_details_of_verbose() -> None:
    outputs = [
        CliRunner().invoke(main, [*COMMAND, *each]).stdout for each in ([], ["-owide"], ["-v"])
    ]
    assert outputs[0] != outputs[1] == outputs[2]
    assert "build-7-pod" in outputs[1]


def test_namespace_without_pods_has_no_findings_and_an_unknown_one_is_an_error(
    tmp_path: Path,
) -> None:
    unknown = CliRunner().invoke(main, [*COMMAND, "-n", "other"])
    message = "podsettle: scan: namespace other is not in examples/scan\n"
    assert (unknown.exit_code, unknown.stdout, unknown.stderr) == (2, "", message)
    path = tmp_path / "other.yaml"
    path.write_text("{apiVersion: v1, kind: Namespace, metadata: {name: other}}")
    words = [*COMMAND, "--manifests", str(path), "-n", "other", "-o", "json"]
    known = CliRunner().invoke(main, words)
    message = "podsettle: scan: no pod was found in namespace other\n"
    assert (known.exit_code, known.stderr) == (0, message)
    assert json.loads(known.stdout)["pods"] == 0


@pytest.mark.parametrize("flag", ["-l", "--field-selector"])
def test_selector_of_pods_is_refused_for_manifests(flag: str) -> None:
    result = CliRunner().invoke(main, [*COMMAND, flag, "a=b"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "select pods of a cluster, not of manifests" in result.stderr


def test_scan_of_nodes_only_does_not_say_that_there_is_no_pod(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: worker}}")
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (0, "")
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path), "-o", "policy"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no policy is proposed" in result.stderr


def test_summary_names_the_policy_that_only_reports_already(tmp_path: Path) -> None:
    proposed = CliRunner().invoke(main, [*COMMAND, "-o", "policy"]).stdout
    (tmp_path / "audit.yaml").write_text(proposed)
    printed = CliRunner().invoke(main, [*COMMAND, "--manifests", str(tmp_path)]).stdout
    summary, _, rest = printed.partition("\n\n")
    assert "kubectl" not in summary
    assert "The proposed policy" not in rest
    assert (
        "cri-o-9840: A policy with postInitSleep is in the cluster already. It changes 1 of the 1 "
        "pod found, once you delete `action: Audit` there."
    ) in " ".join(summary.split())


def test_advice_without_nodes_says_that_they_are_unknown(tmp_path: Path) -> None:
    document = yaml.safe_load((ROOT / "examples" / "scan" / "cluster.yaml").read_text())
    pods = [item for item in document["items"] if item["kind"] == "Pod"]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path)])
    assert "No node could be read, so whether it has a defect is unknown." in result.stdout


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("some.yaml", "", ""),
        ("some.yaml", "kind: Namespace\nmetadata: {name: ci}\n", ""),
        (
            "some.txt",
            "",
            "{path}: the directory has no file .yaml, .yml, .json; subdirectories are not read\n",
        ),
        ("some.json", "[5]", "{path}/some.json:1: is not a Kubernetes object: no kind\n"),
        ("some.json", '{"kind": "PodList", "items": [7]}', "Pod: Expected"),
        (
            "some.json",
            '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 5}}',
            "Pod p: Expected",
        ),
    ],
)
def test_scan_without_a_pod_and_a_node_ends_with_an_error(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path)])
    assert result.exit_code == 2
    message = f"podsettle: {said or 'scan: nothing could be read'}".format(path=tmp_path)
    assert result.stderr.startswith(message)
    assert said.startswith("Pod") or "nothing could be read" in result.stderr
    assert "no pod was found" not in result.stderr


@pytest.mark.parametrize(
    ("kind", "metadata", "looked", "why"),
    [
        ("SettlePolicy", {"name": "p"}, "not_looked_at", "not valid: p"),
        ("Namespace", {"name": "b", "labels": 5}, "partly", "not valid: b"),
        ("Namespace", {"name": 5}, "partly", "not valid: one without a name"),
        ("Node", {"name": "m", "labels": 5}, "partly", "not valid: m; 1 could not be decoded"),
        ("Pod", {"name": "p", "labels": 5}, "partly", "1 could not be decoded"),
    ],
)
def test_invalid_objects_are_named_and_never_count_as_none(
    kind: str, metadata: dict[str, object], looked: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "some.json").write_text(json.dumps({"kind": kind, "metadata": metadata}))
    result = CliRunner().invoke(main, [*COMMAND, "--manifests", str(tmp_path), "-o", "json"])
    areas = {each["name"]: each for each in json.loads(result.stdout)["areas"]}
    name = "settlepolicies" if kind == "SettlePolicy" else f"{kind.lower()}s"
    assert (areas[name]["looked"], areas[name]["why"]) == (looked, why)
    named = "Pod p: " if kind == "Pod" else f"{tmp_path}/some.json:1: "
    assert f"podsettle: {named}" in result.stderr


def test_scan_of_a_file_that_is_not_yaml_says_only_that(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: 1\nb: [\n")
    result = CliRunner().invoke(main, ["scan", "--manifests", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"podsettle: {tmp_path}/bad.yaml:3: not YAML: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command", [["scan"], ["scan", "-o", "json"], ["explain", "p", "-n", "ci"]]
)
@pytest.mark.parametrize("end", [slice(-30), slice(-3)])
@pytest.mark.parametrize("after", ["", "]"])
def test_dump_that_is_cut_off_or_goes_on_is_no_answer(
    tmp_path: Path, command: list[str], end: slice, after: str
) -> None:
    """What the file lacks is not known: a symptom may be in it."""
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ci"}, "spec": {"containers": []}}
    nodes = [{"kind": "Node", "metadata": {"name": f"n{number}"}} for number in range(3)]
    text = json.dumps({"kind": "List", "items": [pod, *nodes]}, indent=1)
    (tmp_path / "dump.json").write_text(f"{text}{after}" if after else text[end])
    result = CliRunner().invoke(main, [*command, "--manifests", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"podsettle: {tmp_path}/dump.json:")
    assert result.stderr.count("\n") == 1


def test_dump_is_read_from_standard_input_as_from_a_file() -> None:
    (dump,) = (ROOT / "examples" / "scan").glob("*.yaml")
    from_file = CliRunner().invoke(main, ["scan", "--manifests", str(dump), "-o", "json"])
    text = dump.read_text()
    piped = CliRunner().invoke(main, ["scan", "--manifests", "-", "-o", "json"], input=text)
    assert piped.exit_code == from_file.exit_code == 1
    reports = [json.loads(each.stdout) for each in (from_file, piped)]
    for report in reports:
        del report["cluster"], report["command"], report["applyCommand"], report["scannedAt"]
    assert reports[0] == reports[1]
    found = json.loads(piped.stdout)
    assert (found["cluster"], found["command"]) == ("stdin", "podsettle scan --manifests FILE")


def test_standard_input_is_given_to_one_argument_only() -> None:
    result = CliRunner().invoke(main, ["preview", "-", "--manifests", "-"], input="")
    assert result.exit_code == 2
    assert "standard input can be read only once" in result.stderr


def test_json_dump_with_more_values_than_a_document_may_have_is_scanned(tmp_path: Path) -> None:
    status = {"phase": "Running", "numbers": [1] * 10_000}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "ci"},
            "spec": {"containers": [{"name": "main"}]},
            "status": status,
        }
        for number in range(60)
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    result = CliRunner().invoke(main, ["scan", "--manifests", str(path), "-o", "json"])
    assert result.stderr == ""
    assert json.loads(result.stdout)["pods"] == 60
