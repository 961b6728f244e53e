"""Tests of `podsettle node-config`: its output, and the options that it refuses."""

from __future__ import annotations

import base64
from configparser import ConfigParser

import pytest
import yaml

from tests.support.node_config import CONTAINERD, CRIO, printed, refused, toml

V1 = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
V2 = "try-skip-volume-selinux-label.crio.io"


def test_handler_allows_the_annotation_keys_that_the_oldest_crio_supports() -> None:
    runtimes = toml(*CRIO, "--oldest", "1.33.12")["crio"]["runtime"]["runtimes"]
    assert runtimes == {
        "selinux-fix-runtime": {"inherit_default_runtime": True, "allowed_annotations": [V1]}
    }
    runtimes = toml(*CRIO, "--oldest", "1.35.0")["crio"]["runtime"]["runtimes"]
    assert runtimes["selinux-fix-runtime"]["allowed_annotations"] == [V2, V1]


@pytest.mark.parametrize("arguments", [(), ("--oldest", "1.31.2"), ("--oldest", "1.29.0")])
def test_handler_for_an_older_crio_names_its_oci_runtime(arguments: tuple[str, ...]) -> None:
    runtimes = toml(*CRIO, *arguments, "--oci-runtime", "crun")["crio"]["runtime"]["runtimes"]
    assert runtimes["selinux-fix-runtime"] == {
        "runtime_path": "/usr/bin/crun",
        "runtime_root": "/run/crun",
        "runtime_type": "oci",
        "allowed_annotations": [V1],
    }


def test_workload_mode_is_activated_by_the_annotation() -> None:
    workloads = toml(*CRIO, "--mode", "workload", "--handler", "w")["crio"]["runtime"]["workloads"]
    assert workloads == {"w": {"activation_annotation": V1, "allowed_annotations": [V1]}}
    (only,) = yaml.safe_load_all(printed(*CRIO, "--mode", "workload"))
    assert only["kind"] == "MachineConfig"
    assert "needs no RuntimeClass" in refused(*CRIO, "--mode", "workload", "-o", "runtimeclass")


def test_default_annotations_need_a_crio_that_supports_them() -> None:
    mode = ("--mode", "default-annotations")
    runtimes = toml(*CRIO, *mode, "--oldest", "1.31.4")["crio"]["runtime"]["runtimes"]
    assert runtimes["selinux-fix-runtime"]["default_annotations"] == {V1: "true"}
    for arguments in ((), ("--oldest", "1.31.3")):
        assert "1.31.4 and 1.32.0" in refused(*CRIO, *mode, *arguments)


def test_crio_before_1_24_is_refused() -> None:
    assert "1.24 is the first" in refused(*CRIO, "--oldest", "1.23.3")


def test_machine_config_contains_the_drop_in() -> None:
    documents = list(yaml.safe_load_all(printed(*CRIO, "--role", "infra")))
    assert [document["kind"] for document in documents] == ["MachineConfig", "RuntimeClass"]
    machine_config = documents[0]
    assert machine_config["metadata"] == {
        "name": "99-infra-podsettle-selinux",
        "labels": {"machineconfiguration.openshift.io/role": "infra"},
    }
    (file,) = machine_config["spec"]["config"]["storage"]["files"]
    assert file["path"] == "/etc/crio/crio.conf.d/99-podsettle-selinux.conf"
    assert file["mode"] == 420
    head, _, content = file["contents"]["source"].partition(",")
    assert head == "data:text/plain;charset=utf-8;base64"
    assert base64.b64decode(content).decode() == printed(*CRIO, "-o", "dropin")


def test_comment_contains_every_line_of_the_drop_in() -> None:
    comment = [line for line in printed(*CRIO).splitlines() if line.startswith("#")]
    for line in printed(*CRIO, "-o", "dropin").splitlines():
        assert f"# {line}" in comment


@pytest.mark.parametrize(
    ("arguments", "version"),
    [
        ((), 2),
        (("--oldest", "1.7.29"), 2),
        (("--oldest", "2.1.0"), 2),
        (("--oldest", "2.1.0", "--config-version", "2"), 2),
        (("--oldest", "2.1.0", "--config-version", "3"), 3),
        (("--config-version", "3"), 3),
    ],
)
def test_containerd_drop_in_sets_the_volatile_mount_option(
    arguments: tuple[str, ...], version: int
) -> None:
    assert toml(*CONTAINERD, *arguments) == {
        "version": version,
        "plugins": {"io.containerd.snapshotter.v1.overlayfs": {"mount_options": ["volatile"]}},
    }


@pytest.mark.parametrize("oldest", ["1.5.9", "1.6.23", "1.7.3"])
def test_containerd_without_the_mount_option_is_refused(oldest: str) -> None:
    assert "1.6.24, 1.7.4 and 2.0" in refused(*CONTAINERD, "--oldest", oldest)
    assert "1.6.24" in refused(*CONTAINERD, "--oldest", oldest, "--config-version", "2")


def test_containerd_that_cannot_read_the_configuration_version_is_refused() -> None:
    message = refused(*CONTAINERD, "--oldest", "1.7.29", "--config-version", "3")
    assert "cannot read --config-version 3" in message


@pytest.mark.parametrize(
    ("oldest", "message"),
    [
        ("4.20", "may be a release of OpenShift; its CRI-O is 1.33: see kubectl get nodes"),
        ("4.19.3", "its CRI-O is 1.32"),
        ("133.12", "there is no CRI-O 133.12"),
        ("1.133.12", "there is no CRI-O 1.133.12 yet"),
        ("1.99", "there is no CRI-O 1.99 yet: see"),
        ("4.99", "4.99 may be a release of OpenShift; give the release of CRI-O: see"),
        ("1.33.rc1", "'1.33.rc1' is not a version such as 1.33.12"),
        ("1.33.x", "'1.33.x' is not a version such as 1.33.12"),
        ("0.9", "there is no CRI-O 0.9"),
        ("2.1.5", "there is no CRI-O 2.1.5"),
        ("1.31", "1.31 has no patch number, but the result depends on it: give the whole release"),
        (
            "1.31-3.rhaos4.18",
            "1.31-3.rhaos4.18 has no patch number, but the result depends on it: give",
        ),
        ("containerd://2.1.5", "'containerd://2.1.5' is not a release of cri-o"),
        ("new", "'new' is not a version"),
    ],
)
def test_invalid_release_of_crio_is_refused(oldest: str, message: str) -> None:
    assert message in refused(*CRIO, "--oldest", oldest)


@pytest.mark.parametrize(
    ("oldest", "message"),
    [
        ("5.10", "there is no containerd 5.10"),
        ("1.8.0", "there is no containerd 1.8.0"),
        ("2.133.0", "there is no containerd 2.133.0"),
        ("1.7", "1.7 has no patch number, but the result depends on it: give the whole release"),
        ("1.6", "1.6 has no patch number, but the result depends on it: give the whole release"),
        ("1.7.x", "'1.7.x' is not a version such as 2.1.5"),
        (
            "v1.33.5+k3s1",
            "v1.33.5+k3s1 may be a release of Kubernetes; the release of containerd is in the "
            "column CONTAINER-RUNTIME",
        ),
        ("cri-o://1.33.5", "'cri-o://1.33.5' is not a release of containerd"),
    ],
)
def test_invalid_release_of_containerd_is_refused(oldest: str, message: str) -> None:
    assert message in refused(*CONTAINERD, "--oldest", oldest)


def test_release_is_accepted_in_the_form_of_the_node_status() -> None:
    as_stated = printed(*CRIO, "--oldest", "cri-o://1.33.5-3.rhaos4.20.gitabcdef.el9")
    assert as_stated == printed(*CRIO, "--oldest", "1.33.5") == printed(*CRIO, "--oldest", "1.33")
    as_stated = printed(*CONTAINERD, "--oldest", "containerd://2.1.5")
    assert as_stated == printed(*CONTAINERD, "--oldest", "2.1.5")


@pytest.mark.parametrize(
    "wrong",
    [
        ("--handler", "a.b"),
        ("--handler", 'a"]'),
        ("--handler", ""),
        ("--runtime-class", "A"),
        ("--runtime-class", "a..b"),
    ],
)
def test_names_that_the_api_server_or_crio_would_refuse_are_refused(
    wrong: tuple[str, str],
) -> None:
    assert wrong[0] in refused(*CRIO, *wrong)
    assert wrong[0] in refused(*CONTAINERD, *wrong)
    assert "--role" in refused(*CRIO, "--role", "Worker_1")


@pytest.mark.parametrize("name", ["runc", "crun"])
def test_default_handler_of_crio_is_not_replaced(name: str) -> None:
    assert "may be the nodes' default handler" in refused(*CRIO, "--handler", name)
    assert printed(*CONTAINERD, "--handler", name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mode", "workload", "--runtime-class", "a"),
        ("--mode", "workload", "--node-selector", "a=b"),
        ("--mode", "workload", "--oci-runtime", "crun"),
        ("--oldest", "1.33.12", "--oci-runtime", "crun"),
    ],
)
def test_option_without_effect_is_refused(arguments: tuple[str, ...]) -> None:
    assert f"{arguments[2]} has no effect" in refused(*CRIO, *arguments)


@pytest.mark.parametrize(("runtime", "count"), [("crio", 4), ("containerd", 2)])
def test_commands_for_each_choice_are_listed_and_work(runtime: str, count: int) -> None:
    lines = printed(runtime).splitlines()
    commands = [line.split() for line in lines if line.startswith("  podsettle ")]
    assert len(commands) == count
    for program, group, *arguments in commands:
        assert (program, group) == ("podsettle", "node-config")
        assert ("apiVersion:" in printed(*arguments)) is ("--open-files" not in arguments)
    assert max(map(len, lines)) <= 80
    without_choice = refused(runtime, "--node-selector", "a=b")
    assert f"podsettle node-config {runtime} alone lists what you can choose" in without_choice


def test_containerd_output_explains_the_risks_of_volatile_mounts() -> None:
    text = printed(*CONTAINERD)
    for caveat in ("every container", "5.10", "crash", "VOLUME", "imports", "replaces a table"):
        assert caveat in text
    assert "Bottlerocket" in text
    assert "SystemdCgroup" not in text
    assert "SystemdCgroup" in printed(*CONTAINERD, "--config-version", "3")


def test_crio_output_explains_the_conditions_of_skipping_the_relabelling() -> None:
    text = printed(*CRIO, "--role", "infra", "--oldest", "1.35.0")
    for caveat in ("before 1.35", "drains", "'infra'", "compact", "ContainerCreating", "deeper"):
        assert caveat in text
    assert "before 1.35 starts" in text
    newer = (*CRIO, "--oldest", "1.35.0")
    assert "before 1.35 does not start" in printed(*newer, "--mode", "workload")
    assert "before 1.35" not in printed(*newer, "--mode", "default-annotations")
    text = printed(*CRIO, "--oldest", "1.33.12", "--mode", "workload")
    for other in ("before 1.35", "RuntimeClass"):
        assert other not in text


def test_node_selector_may_have_an_empty_value() -> None:
    selector = ("--node-selector", "node-role.kubernetes.io/worker=")
    made = yaml.safe_load(printed(*CRIO, *selector, "-o", "runtimeclass"))
    assert made["scheduling"] == {"nodeSelector": {"node-role.kubernetes.io/worker": ""}}


@pytest.mark.parametrize("runtime", ["crio", "containerd"])
def test_open_files_are_limited_by_a_drop_in_for_the_unit_of_the_runtime(runtime: str) -> None:
    text = printed(runtime, "--open-files", "1024:524288")
    path, _, rest = text.partition(", on each node:\n")
    assert path == f"# /etc/systemd/system/{runtime}.service.d/99-podsettle-open-files.conf"
    assert f"systemctl restart {runtime}.service" in rest
    parser = ConfigParser()
    parser.read_string(text)
    assert {name: dict(parser[name]) for name in parser.sections()} == {
        "Service": {"limitnofile": "1024:524288"}
    }


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ("infinity", "two numbers such as 65536:524288"),
        ("65536", "two numbers"),
        ("0:1", "two numbers"),
        ("524288:65536", "the soft limit 524288 is above the hard limit 65536"),
        ("1:9999999999", "is above the kernel's"),
    ],
)
def test_wrong_limits_are_refused(limits: str, why: str) -> None:
    assert why in refused("containerd", "--open-files", limits)


def test_open_files_take_no_other_option() -> None:
    limits = ("--open-files", "1:1")
    assert "takes no other option" in refused("containerd", *limits, "--volatile")
    assert "takes no other option" in refused("crio", *limits, "-o", "dropin")


def test_missing_or_unsupported_option_is_refused_with_its_name() -> None:
    assert "since 1.22" in refused("crio", "--volatile")
    assert "--selinux" in refused("crio", "--oldest", "1.33.0")
    assert "--volatile" in refused("containerd", "--oldest", "2.1.0")
    assert "--node-selector" in refused("containerd", "--volatile")
    assert "'pool' is not of the form key=value" in refused(*CRIO, "--node-selector", "pool")


def test_label_that_kubectl_reads_as_a_boolean_is_quoted() -> None:
    text = printed(*CONTAINERD, "--node-selector", "fast=y", "-o", "runtimeclass")
    assert "    fast: 'y'\n" in text
