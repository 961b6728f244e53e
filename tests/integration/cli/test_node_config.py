"""Tests of `podsettle node-config`: its output, and the options that it refuses."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.factories import Json
from tests.support.node_config import CONTAINERD, CRIO, printed, refused, toml

Arguments = tuple[str, ...]
V1 = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
V2 = "try-skip-volume-selinux-label.crio.io"


PACKAGED = {
    "runtime_path": "/usr/libexec/crio/crun",
    "runtime_root": "/run/crun",
    "runtime_type": "oci",
    "monitor_path": "/usr/libexec/crio/conmon",
    "container_min_memory": "500KiB",
}
"""A handler on nodes with CRI-O's own packages."""
ON_OPENSHIFT = {"inherit_default_runtime": True, "container_min_memory": "500KiB"}
OLD_OPENSHIFT = {
    "inherit_default_runtime": True,
    "runtime_path": "/usr/bin/runc",
    "runtime_root": "/run/runc",
    "runtime_type": "oci",
}
"""CRI-O before 1.31.3 has no inheritance, ignores the key and uses the path."""
HANDLER = (*CRIO, "--mode", "handler")


def handler_of(text: str) -> Any:
    return tomllib.loads(text)["crio"]["runtime"]["runtimes"]["selinux-fix-runtime"]


def machine_config_of(*arguments: str) -> str:
    made = yaml.safe_load(printed(*arguments, "-o", "machineconfig"))
    (file,) = made["spec"]["config"]["storage"]["files"]
    return base64.b64decode(file["contents"]["source"].partition(",")[2]).decode()


@pytest.mark.parametrize(
    ("oldest", "keys", "on_openshift"),
    [
        ((), [V1], OLD_OPENSHIFT),
        (("--oldest", "1.29.0"), [V1], OLD_OPENSHIFT),
        (("--oldest", "1.31.2"), [V1], OLD_OPENSHIFT),
        (("--oldest", "1.31.3"), [V1], ON_OPENSHIFT),
        (("--oldest", "1.33.12"), [V1], ON_OPENSHIFT),
        (("--oldest", "1.35.0"), [V2, V1], ON_OPENSHIFT),
    ],
)
def test_handler_has_the_keys_and_the_paths_of_its_nodes(
    oldest: tuple[str, ...], keys: list[str], on_openshift: Json
) -> None:
    """CRI-O ends if a handler that it does not ignore names no monitor and $PATH has none."""
    elsewhere = handler_of(printed(*HANDLER, *oldest, "-o", "dropin"))
    assert elsewhere == PACKAGED | {"allowed_annotations": keys}
    found = handler_of(machine_config_of(*CRIO, *oldest))
    assert found == on_openshift | {"allowed_annotations": keys}


def test_handler_has_the_chosen_oci_runtime() -> None:
    found = handler_of(printed(*HANDLER, "--oci-runtime", "runc", "-o", "dropin"))
    assert found["runtime_path"] == "/usr/libexec/crio/runc"
    assert "container_min_memory" not in found
    found = handler_of(machine_config_of(*CRIO, "--oci-runtime", "crun"))
    assert (found["runtime_path"], found["runtime_root"]) == ("/usr/bin/crun", "/run/crun")
    assert "inherit_default_runtime" not in found


NODE = """\
[crio]
  root = "/data"
  [crio.runtime]
    default_runtime = "ours"
    [crio.runtime.runtimes]
      [crio.runtime.runtimes.ours]
        runtime_path = "/opt/ours/crun"
        monitor_path = "/opt/ours/conmon"
        monitor_env = ["PATH=/opt/\\"ours"]
        container_min_memory = "%s"
        no_sync_log = false
        inherit_default_runtime = false
        allowed_annotations = ["devices.crio.io"]
        [crio.runtime.runtimes.ours.platform_runtime_paths]
          "linux/arm64" = "/opt/arm/crun"
      [crio.runtime.runtimes.other]
        runtime_path = "/other"
"""
SETTINGS: Json = {
    "runtime_path": "/opt/ours/crun",
    "monitor_path": "/opt/ours/conmon",
    "monitor_env": ['PATH=/opt/"ours'],
    "container_min_memory": "500KiB",
    "no_sync_log": False,
    "platform_runtime_paths": {"linux/arm64": "/opt/arm/crun"},
}


@pytest.mark.parametrize("oldest", [(), ("--oldest", "1.36.3")])
def test_handler_copies_the_default_handler_of_a_node(
    tmp_path: Path, oldest: tuple[str, ...]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(NODE % "500KiB")
    copying = (*HANDLER, *oldest, "--crio-config", str(file))
    expected = SETTINGS | {
        "allowed_annotations": [*([V2] if oldest else []), V1, "devices.crio.io"]
    }
    assert handler_of(printed(*copying, "-o", "dropin")) == expected
    # RHEL 10 has no runc, so the path of RHEL 9 may be gone after an upgrade of OpenShift.
    inherited = {"inherit_default_runtime": True}
    assert handler_of(machine_config_of(*copying)) == expected | inherited
    assert "has none of its other settings" not in printed(*copying)
    defaults = (*CRIO, "--mode", "default-annotations", "--oldest", "1.33.12")
    found = handler_of(printed(*defaults, "--crio-config", str(file), "-o", "dropin"))
    assert found == SETTINGS | {
        "allowed_annotations": ["devices.crio.io"],
        "default_annotations": {V1: "true"},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "crio status config"),
        ("[[", "crio status config"),
        ('[crio.runtime]\ndefault_runtime = "crun"\n', "crio status config"),
        ("[crio]\nruntime = 5\n", "crio status config"),
        (NODE % "much", "'much' is not an amount of memory"),
        ((NODE % "12MiB").replace("runtime_path =", "runtime_root ="), "lacks the paths"),
        ((NODE % "12MiB").replace('"/opt/ours/conmon"', '""'), "lacks the paths"),
        # Values that no CRI-O prints.
        (NODE % f"{'9' * 400}MiB", "is not an amount of memory"),
        *(
            ((NODE % "12MiB").replace("false", value), why)
            for value, why in (
                ("1979-05-27", "no_sync_log: Expected"),
                ("0.5", "no_sync_log: Expected"),
                ("[{}]", "no_sync_log: Expected"),
                ('{"a" = 1}', "no_sync_log: Expected"),
                (f"{'[' * 9999}{']' * 9999}", "recursion"),
            )
        ),
        ((NODE % "12MiB").replace('["devices.crio.io"]', '"a"'), "Expected `array`, got `str`"),
    ],
)
def test_file_that_is_no_configuration_of_a_node_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    said = refused(*HANDLER, "--crio-config", str(file))
    assert message in said
    assert str(file) in said


@pytest.mark.parametrize(
    ("arguments", "memory", "smallest"),
    [
        ((), None, "12Mi"),
        (("--oldest", "1.29.4"), None, "12Mi"),
        (("--oldest", "1.30.0"), None, "12Mi"),
        (("--oldest", "1.31.3"), None, "500Ki"),
        ((), "500KiB", "500Ki"),
        ((), "12MiB", "12Mi"),
        ((), "1.5m", "1536Ki"),
        ((), "5000001", "5000001"),
    ],
)
def test_class_states_the_smallest_memory_limit_and_the_allowed_annotations(
    tmp_path: Path, arguments: tuple[str, ...], memory: str | None, smallest: str
) -> None:
    if memory is not None:
        (tmp_path / "node.toml").write_text(NODE % memory)
        arguments = (*arguments, "--crio-config", str(tmp_path / "node.toml"))
    made = yaml.safe_load(printed(*HANDLER, *arguments, "-o", "runtimeclass"))
    assert made["metadata"]["annotations"] == {
        "podsettle.dev/min-memory": smallest,
        "podsettle.dev/allowed-annotations": "devices.crio.io" if memory else "",
    }


def test_workload_mode_is_activated_by_the_annotation() -> None:
    workload = {"activation_annotation": V1, "allowed_annotations": [V1]}
    for mode in ((), ("--mode", "workload")):
        found = toml(*CRIO, *mode, "--handler", "w")["crio"]["runtime"]
        assert found == {"workloads": {"w": workload}}
    (only,) = yaml.safe_load_all(printed(*CRIO, "--mode", "workload"))
    assert only["kind"] == "MachineConfig"


DEFAULTS = (*CRIO, "--mode", "default-annotations")


def test_default_annotations_are_set_from_the_first_crio_on_that_supports_them() -> None:
    runtimes = toml(*DEFAULTS, "--oldest", "1.31.4")["crio"]["runtime"]["runtimes"]
    assert runtimes["selinux-fix-runtime"]["default_annotations"] == {V1: "true"}


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
    assert file["contents"]["source"].startswith("data:text/plain;charset=utf-8;base64,")


def test_comment_contains_every_line_of_the_drop_in() -> None:
    comment = [line for line in printed(*HANDLER).splitlines() if line.startswith("#")]
    for line in printed(*HANDLER, "-o", "dropin").splitlines():
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


def oldest(runtime: Arguments, messages: dict[str, str]) -> Iterator[tuple[Arguments, str]]:
    """Yield releases that are refused."""
    return (((*runtime, "--oldest", release), message) for release, message in messages.items())


WORKLOAD = (*CRIO, "--mode", "workload")
NO_PATCH = "has no patch number, but the result depends on it: give"
MAY_BE = "may be a release of OpenShift; give the release of CRI-O: see"
REFUSED: list[tuple[Arguments, str]] = [
    *oldest(
        CRIO,
        {
            "1.23.3": "1.24 is the first",
            "4.20": "may be a release of OpenShift; its CRI-O is 1.33: see kubectl get nodes",
            "4.19.3": "its CRI-O is 1.32",
            "133.12": "there is no CRI-O 133.12",
            "1.133.12": "there is no CRI-O 1.133.12 yet",
            "1.99": "there is no CRI-O 1.99 yet: see",
            "4.99": f"4.99 {MAY_BE}",
            "5.0": f"5.0 {MAY_BE}",
            "1.33.rc1": "'1.33.rc1' is not a version such as 1.33.12",
            "0.9": "there is no CRI-O 0.9",
            "2.1.5": "there is no CRI-O 2.1.5",
            "1.31": f"1.31 {NO_PATCH} the whole release",
            "1.31-3.rhaos4.18": f"1.31-3.rhaos4.18 {NO_PATCH}",
            "containerd://2.1.5": "'containerd://2.1.5' is not a release of cri-o",
            "new": "'new' is not a version",
        },
    ),
    *oldest(
        CONTAINERD,
        {
            **dict.fromkeys(("1.5.9", "1.6.23", "1.7.3"), "1.6.24, 1.7.4 and 2.0"),
            "5.10": "there is no containerd 5.10",
            "1.8.0": "there is no containerd 1.8.0",
            "2.133.0": "there is no containerd 2.133.0",
            "1.7": f"1.7 {NO_PATCH} the whole release",
            "1.6": f"1.6 {NO_PATCH} the whole release",
            "1.7.x": "'1.7.x' is not a version such as 2.1.5",
            "v1.33.5+k3s1": "v1.33.5+k3s1 may be a release of Kubernetes; the release of "
            "containerd is in the column CONTAINER-RUNTIME",
            "cri-o://1.33.5": "'cri-o://1.33.5' is not a release of containerd",
        },
    ),
    ((*CONTAINERD, "--oldest", "1.6.23", "--config-version", "2"), "1.6.24"),
    (
        (*CONTAINERD, "--oldest", "1.7.29", "--config-version", "3"),
        "cannot read --config-version 3",
    ),
    (DEFAULTS, "1.31.4 and 1.32.0"),
    ((*DEFAULTS, "--oldest", "1.31.3"), "1.31.4 and 1.32.0"),
    # Names that the API server or CRI-O would refuse.
    *(
        ((*runtime, option, value), option)
        for runtime in (CRIO, CONTAINERD)
        for option, values in (
            ("--handler", ("a.b", 'a"]', "")),
            ("--runtime-class", ("A", "a..b")),
        )
        for value in values
    ),
    ((*CRIO, "--role", "Worker_1"), "--role"),
    ((*CRIO, "--handler", "runc"), "may be the nodes' default handler"),
    ((*CRIO, "--handler", "crun"), "may be the nodes' default handler"),
    # Options without an effect.
    ((*WORKLOAD, "-o", "runtimeclass"), "needs no RuntimeClass"),
    *(
        ((*WORKLOAD, option, value), f"{option} has no effect")
        for option, value in (
            *(("--runtime-class", "a"), ("--node-selector", "a=b")),
            *(("--oci-runtime", "crun"), ("--crio-config", "/dev/null")),
        )
    ),
    ((*CRIO, "--oldest", "1.33.12", "--oci-runtime", "crun"), "--oci-runtime has no effect"),
    *(
        (("containerd", "--open-files", limits), why)
        for limits, why in (
            ("infinity", "two numbers such as 65536:524288"),
            ("65536", "two numbers"),
            ("0:1", "two numbers"),
            ("524288:65536", "the soft limit 524288 is above the hard limit 65536"),
            ("1:9999999999", "is above the kernel's"),
        )
    ),
    (("containerd", "--open-files", "1:1", "--volatile"), "takes no other option"),
    (("crio", "--open-files", "1:1", "--selinux"), "takes no other option"),
    (("crio", "--open-files", "1:1", "-o", "runtimeclass"), "needs no RuntimeClass"),
    # The missing or unsupported option is named.
    (("crio", "--volatile"), "since 1.22"),
    (("crio", "--oldest", "1.33.0"), "--selinux"),
    (("containerd", "--oldest", "2.1.0"), "--volatile"),
    (("containerd", "--volatile"), "--node-selector"),
    ((*CRIO, "--node-selector", "pool"), "'pool' is not of the form key=value"),
    *(
        (
            (runtime, "--node-selector", "a=b"),
            f"podsettle node-config {runtime} alone lists what you can choose",
        )
        for runtime in ("crio", "containerd")
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSED, ids=[" ".join(each) for each, _ in REFUSED]
)
def test_options_are_refused_with_the_reason(arguments: Arguments, message: str) -> None:
    assert message in refused(*arguments)


def test_default_handler_of_the_given_node_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(NODE % "12MiB")
    said = refused(*HANDLER, "--crio-config", str(tmp_path / "node.toml"), "--handler", "ours")
    assert "may be the nodes' default handler" in said
    assert printed(*CONTAINERD, "--handler", "runc"), "containerd keeps its own"


def test_release_is_accepted_in_the_form_of_the_node_status() -> None:
    as_stated = printed(*CRIO, "--oldest", "cri-o://1.33.5-3.rhaos4.20.gitabcdef.el9")
    assert as_stated == printed(*CRIO, "--oldest", "1.33.5") == printed(*CRIO, "--oldest", "1.33")
    as_stated = printed(*CONTAINERD, "--oldest", "containerd://v2.1.5.m")
    assert as_stated == printed(*CONTAINERD, "--oldest", "2.1.5")


@pytest.mark.parametrize(("runtime", "count"), [("crio", 4), ("containerd", 2)])
def test_commands_for_each_choice_are_listed_and_work(runtime: str, count: int) -> None:
    lines = printed(runtime).splitlines()
    commands = [line.split() for line in lines if line.startswith("  podsettle ")]
    assert len(commands) == count
    for program, group, *arguments in commands:
        assert (program, group) == ("podsettle", "node-config")
        is_file = "--open-files" in arguments or "dropin" in arguments
        assert ("apiVersion:" in printed(*arguments)) is not is_file
    assert max(map(len, lines)) <= 80


def test_containerd_output_explains_the_risks_of_volatile_mounts() -> None:
    text = printed(*CONTAINERD)
    for caveat in ("every container", "5.10", "crash", "VOLUME", "imports", "replaces a table"):
        assert caveat in text
    assert "Bottlerocket" in text
    assert "SystemdCgroup" not in text
    assert "SystemdCgroup" in printed(*CONTAINERD, "--config-version", "3")


def test_crio_output_explains_the_conditions_of_skipping_the_relabelling() -> None:
    text = printed(*CRIO, "--role", "infra", "--oldest", "1.35.0")
    caveats = ("before 1.35", "drains", "'infra'", "compact", "ContainerCreating", "deeper")
    for caveat in (*caveats, "has none of its other settings"):
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


def test_open_files_are_limited_by_a_drop_in_for_the_unit_of_containerd() -> None:
    text = printed("containerd", "--open-files", "1024:524288")
    path, _, rest = text.partition(", on each node:\n")
    directory, _, name = path.rpartition("/")
    assert directory == "# /etc/systemd/system/containerd.service.d"
    # Drop-ins of `systemctl edit` and AKS, which systemd has to apply before this one.
    assert name > max("override.conf", "set_ulimits.conf")
    assert "systemctl restart containerd.service" in rest
    assert "base_runtime_spec" in rest
    parser = ConfigParser()
    parser.read_string(text)
    assert {name: dict(parser[name]) for name in parser.sections()} == {
        "Service": {"limitnofile": "1024:524288"}
    }


def test_open_files_are_limited_also_if_crio_has_default_ulimits() -> None:
    arguments = ("crio", "--open-files", "1024:524288")
    text = printed(*arguments)
    assert "grep default_ulimits" in text
    path = text.partition(",")[0].removeprefix("# ")
    directory, _, name = path.rpartition("/")
    assert directory == "/etc/crio/crio.conf.d"
    # Those of OpenShift 4.20, and of operators. CRI-O takes the list of the last file.
    assert name > max("00-default", "01-ctrcfg-defaultUlimits", "99-ulimits.conf", "custom")
    limits = {"crio": {"runtime": {"default_ulimits": ["nofile=1024:524288"]}}}
    on_openshift = machine_config_of(*arguments)
    assert tomllib.loads(text) == toml(*arguments) == tomllib.loads(on_openshift) == limits
    made = yaml.safe_load(printed(*arguments, "--role", "infra", "-o", "machineconfig"))
    assert made["metadata"]["name"] == "99-infra-podsettle-open-files"
    assert made["spec"]["config"]["storage"]["files"][0]["path"] == path


def test_label_that_kubectl_reads_as_a_boolean_is_quoted() -> None:
    text = printed(*CONTAINERD, "--node-selector", "fast=y", "-o", "runtimeclass")
    assert "    fast: 'y'\n" in text


# The forms that distributions take: --for


VOLATILE = (*CONTAINERD, "-o", "dropin", "--for")
OPEN_FILES = ("containerd", "--open-files", "65536:524288", "--for")
TABLE = {"plugins": {"io.containerd.snapshotter.v1.overlayfs": {"mount_options": ["volatile"]}}}
LIMITS = {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 524288}]}


def document(*arguments: str) -> Any:
    return yaml.safe_load(printed(*arguments))


def test_eks_node_config_contains_the_table_without_a_version() -> None:
    node_config = document(*VOLATILE, "eks")
    assert node_config["apiVersion"] == "node.eks.aws/v1alpha1"
    assert node_config["kind"] == "NodeConfig"
    assert tomllib.loads(node_config["spec"]["containerd"]["config"]) == TABLE


def test_talos_patch_contains_the_table_without_a_version() -> None:
    (file,) = document(*VOLATILE, "talos")["machine"]["files"]
    assert file["path"] == "/etc/cri/conf.d/20-customization.part"
    assert file["op"] == "create"
    assert tomllib.loads(file["content"]) == TABLE


def test_limits_on_open_files_are_in_the_base_runtime_spec() -> None:
    spec = document(*OPEN_FILES, "eks")["spec"]
    assert spec["containerd"]["baseRuntimeSpec"] == {"process": LIMITS}
    machine = document(*OPEN_FILES, "talos")["machine"]
    assert machine["baseRuntimeSpecOverrides"] == {"process": LIMITS}


def test_limit_above_the_default_of_the_kernel_is_warned_of() -> None:
    """runc fails for it (EPERM of setrlimit), so no container starts."""
    for hard, warned in ((1_048_576, False), (1_048_577, True)):
        text = printed("containerd", "--open-files", f"65536:{hard}", "--for", "talos")
        assert ("fs.nr_open" in text) == warned


def test_unknown_distribution_is_refused_with_the_known_ones() -> None:
    assert "'k3s' is not one of 'eks', 'talos'" in refused(*VOLATILE, "k3s")


def test_options_without_effect_on_a_distribution_are_refused() -> None:
    assert "add -o dropin" in refused(*CONTAINERD, "--for", "eks")
    assert "add -o dropin" in refused(*CONTAINERD, "--for", "eks", "-o", "runtimeclass")
    assert "has no effect with --for eks" in refused(*VOLATILE, "eks", "--config-version", "2")
    assert "takes no other option" in refused(*OPEN_FILES, "eks", "-o", "dropin")
    assert "mount_options" in refused(*VOLATILE, "eks", "--oldest", "1.6.10")
