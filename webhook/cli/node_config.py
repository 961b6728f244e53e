"""The command `podsettle node-config`, which prints configuration for nodes and a RuntimeClass."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click
import yaml
from click.core import ParameterSource

from webhook.cli.echo import echo_text
from webhook.cli.options import InputError
from webhook.core.constants import DNS_LABEL, DNS_LABEL_NAME
from webhook.core.defects.versions import Version
from webhook.core.kubectl_yaml import KubectlDumper
from webhook.core.labels import parse_labels
from webhook.node_config import containerd as containerd_nodes
from webhook.node_config import crio as crio_nodes
from webhook.node_config import open_files as open_files_of_nodes
from webhook.node_config.crio import Mode
from webhook.node_config.runtime_class_manifest import runtime_class_manifest
from webhook.node_config.runtime_release import UnsupportedError


class ReleaseType(click.ParamType[Version]):
    """An option type for a release, such as `1.33.12` or `cri-o://1.33.5-3.rhaos4.20`."""

    name = "version"

    def __init__(self, parse_release: Callable[[str], Version]) -> None:
        self._parse_release = parse_release

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Version:
        """Parse a release."""
        if isinstance(value, Version):
            return value
        try:
            return self._parse_release(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _oldest_option(
    runtime: str, parse_release: Callable[[str], Version]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--oldest` for releases of a runtime."""
    return click.option(
        "--oldest",
        type=ReleaseType(parse_release),
        help=f"The oldest {runtime} release on the nodes that get the configuration. kubectl get "
        "nodes -o wide shows the releases. Without this option, the output is valid for all "
        "supported releases.",
    )


_DNS_SUBDOMAIN_NAME = re.compile(rf"(?=.{{1,253}}$){DNS_LABEL}(\.{DNS_LABEL})*", re.ASCII)
"""A DNS subdomain whose labels have at most 63 characters each. DNS_SUBDOMAIN has no lengths."""


def _check_label_name(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not DNS_LABEL_NAME.fullmatch(value):
        message = f"{value!r} is not a DNS label: use lower-case letters, digits and '-'"
        raise click.BadParameter(message, param=parameter)
    return value


def _check_subdomain_name(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _DNS_SUBDOMAIN_NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a DNS subdomain", param=parameter)
    return value


_NODE_SELECTOR_OPTION = "--node-selector"
node_selector_option = click.option(
    _NODE_SELECTOR_OPTION,
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of the nodes that get the configuration. Can be repeated. Pods of the "
    "RuntimeClass run only on nodes that have all these labels.",
)


_OPEN_FILES_OPTION = "--open-files"


def _parse_limits(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    try:
        return open_files_of_nodes.parse_limits(value)
    except open_files_of_nodes.LimitsError as error:
        raise click.BadParameter(str(error), param=parameter) from None


open_files_option = click.option(
    _OPEN_FILES_OPTION,
    callback=_parse_limits,
    metavar="SOFT:HARD",
    help="Print a drop-in for the systemd unit of the runtime, which gives containers these limits "
    "on open files. There is no RuntimeClass.",
)


class _Choice(NamedTuple):
    """What a user can choose, and the arguments for it."""

    sentence: str
    arguments: str


_OPEN_FILES_CHOICE = _Choice(
    "Give every container these limits on open files. The output is a drop-in for the systemd unit "
    "of the runtime.",
    f"{_OPEN_FILES_OPTION} 65536:524288",
)
_CRIO_QUESTION = "What are the nodes to do, and for which pods?"
_CRIO_CHOICES = (
    _Choice(
        "Skip the relabelling of volumes for pods that have the annotation and the RuntimeClass. "
        "This is the default.",
        "--selinux",
    ),
    _Choice(
        "Skip it for pods that have the annotation. There is no RuntimeClass.",
        "--selinux --mode workload",
    ),
    _Choice(
        "Skip it for every pod of the RuntimeClass, with or without the annotation. Every node "
        "needs CRI-O 1.31.4, 1.32.0 or later.",
        "--selinux --mode default-annotations --oldest 1.32",
    ),
    _OPEN_FILES_CHOICE,
)
_CONTAINERD_QUESTION = "What are the nodes to do?"
_CONTAINERD_CHOICES = (
    _Choice(
        "Mount the root filesystem of every container with the option volatile, so that its umount "
        "writes nothing back. The label selects the nodes: give them one of your own.",
        "--volatile --node-selector rootfs=volatile",
    ),
    _OPEN_FILES_CHOICE,
)


@click.group("node-config")
def node_config() -> None:
    """Print configuration for nodes, and the RuntimeClass that belongs to it."""


@node_config.command()
@click.option(
    "--selinux", is_flag=True, help="Allow pods to skip the relabelling of their volumes."
)
@click.option("--volatile", is_flag=True, hidden=True)
@open_files_option
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.HANDLER.value,
    show_default=True,
    help="Which pods skip the relabelling. handler: pods with the annotation and the RuntimeClass. "
    "workload: pods with the annotation. default-annotations: pods with the RuntimeClass.",
)
@click.option(
    "--handler",
    default="selinux-fix-runtime",
    show_default=True,
    metavar="NAME",
    callback=_check_label_name,
    help="The name of the runtime handler or workload in CRI-O's configuration.",
)
@click.option(
    "--runtime-class",
    "class_name",
    default="selinux-fix-runtime-class",
    show_default=True,
    metavar="NAME",
    callback=_check_subdomain_name,
    help="The name of the RuntimeClass, which policies use.",
)
@click.option(
    "--role",
    default="worker",
    show_default=True,
    metavar="NAME",
    callback=_check_label_name,
    help="The machine config pool of OpenShift that gets the MachineConfig.",
)
@click.option(
    "--oci-runtime",
    type=click.Choice(["runc", "crun"]),
    default="runc",
    show_default=True,
    help="The OCI runtime, on CRI-O before 1.31.3. Later releases use their own default.",
)
@_oldest_option("CRI-O", crio_nodes.parse_release)
@node_selector_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["machineconfig", "dropin", "runtimeclass", "all"]),
    default="all",
    show_default=True,
    help="all: the MachineConfig and the RuntimeClass, with the drop-in and notes in comments.",
)
@click.pass_context
def crio(
    context: click.Context,
    selinux: bool,
    volatile: bool,
    open_files: tuple[int, int] | None,
    mode: str,
    handler: str,
    class_name: str,
    role: str,
    oci_runtime: str,
    oldest: Version | None,
    node_selector: tuple[str, ...],
    output: str,
) -> None:
    """Print configuration for CRI-O.

    Without options, it lists what you can choose, with the command for each.
    """
    if volatile:
        raise InputError("--volatile is not needed: CRI-O uses volatile mounts since 1.22")
    if not _options_of_user(context):
        _print_choices(context, _CRIO_QUESTION, _CRIO_CHOICES)
        return
    if open_files is not None:
        _print_unit_drop_in(context, "crio.service", open_files)
        return
    if not selinux:
        raise InputError(_missing_option(context, "--selinux"))
    _reject_options_without_effect(context, Mode(mode), oldest)
    try:
        drop_in = crio_nodes.selinux_drop_in(Mode(mode), handler, oldest, oci_runtime)
    except UnsupportedError as error:
        raise InputError(str(error)) from None
    if output == "dropin":
        echo_text(drop_in)
        return
    objects = []
    if output in ("machineconfig", "all"):
        objects.append(crio_nodes.machine_config(role, drop_in))
    if output in ("runtimeclass", "all"):
        if mode != Mode.WORKLOAD:
            objects.append(
                runtime_class_manifest(class_name, handler, _parse_node_selector(node_selector))
            )
        elif output == "runtimeclass":
            raise InputError("--mode workload needs no RuntimeClass")
    comments: tuple[str, ...] = ()
    if output == "all":
        caveats = crio_nodes.caveats(Mode(mode), role, oldest)
        comments = (*caveats, "", f"{crio_nodes.DROP_IN}, on each node:", "", drop_in)
    echo_text(_to_yaml(comments, objects))


@node_config.command()
@click.option("--volatile", is_flag=True, help="Make overlayfs mounts volatile.")
@open_files_option
@click.option(
    "--config-version",
    type=click.Choice(["2", "3"]),
    help="The version of the drop-in. The default, 2, works with every containerd. 3 needs "
    "containerd 2.0 and a main configuration of version 3.",
)
@click.option(
    "--handler",
    default="runc",
    show_default=True,
    metavar="NAME",
    callback=_check_label_name,
    help="A runtime handler that the nodes already have.",
)
@click.option(
    "--runtime-class",
    "class_name",
    default="overlay-volatile",
    show_default=True,
    metavar="NAME",
    callback=_check_subdomain_name,
    help="The name of the RuntimeClass, which policies use.",
)
@_oldest_option("containerd", containerd_nodes.parse_release)
@node_selector_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["dropin", "runtimeclass", "all"]),
    default="all",
    show_default=True,
    help="all: the RuntimeClass, with the drop-in and notes in comments.",
)
@click.pass_context
def containerd(
    context: click.Context,
    volatile: bool,
    open_files: tuple[int, int] | None,
    config_version: str | None,
    handler: str,
    class_name: str,
    oldest: Version | None,
    node_selector: tuple[str, ...],
    output: str,
) -> None:
    """Print configuration for containerd.

    Without options, it lists what you can choose, with the command for each.
    """
    if not _options_of_user(context):
        _print_choices(context, _CONTAINERD_QUESTION, _CONTAINERD_CHOICES)
        return
    if open_files is not None:
        _print_unit_drop_in(context, "containerd.service", open_files)
        return
    if not volatile:
        raise InputError(_missing_option(context, "--volatile"))
    if output != "dropin" and not node_selector:
        raise InputError(
            "volatile mounts apply to whole nodes: give --node-selector KEY=VALUE, a label of the "
            "nodes that get the configuration"
        )
    try:
        number = int(config_version) if config_version else None
        version = containerd_nodes.choose_config_version(oldest, number)
    except UnsupportedError as error:
        raise InputError(str(error)) from None
    drop_in = containerd_nodes.volatile_drop_in(version)
    if output == "dropin":
        echo_text(drop_in)
        return
    comments: tuple[str, ...] = ()
    if output == "all":
        comments = (
            *containerd_nodes.caveats(version),
            "",
            f"{containerd_nodes.DROP_IN}, on each node:",
            "",
            drop_in,
        )
    runtime_class = runtime_class_manifest(class_name, handler, _parse_node_selector(node_selector))
    echo_text(_to_yaml(comments, [runtime_class]))


def _print_unit_drop_in(context: click.Context, unit: str, limits: tuple[int, int]) -> None:
    """Print the drop-in of a unit. Raise InputError if the user gave another option."""
    if _options_of_user(context) != {"open_files"}:
        raise InputError(f"{_OPEN_FILES_OPTION} takes no other option")
    comment = _to_yaml(open_files_of_nodes.caveats(unit), ())
    echo_text(comment + open_files_of_nodes.unit_drop_in(*limits))


def _options_of_user(context: click.Context) -> set[str]:
    """Return the names of the options that the user gave."""
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }


def _print_choices(context: click.Context, question: str, choices: Iterable[_Choice]) -> None:
    """Print a sentence and a whole command for each choice."""
    lines = [question]
    for sentence, arguments in choices:
        lines += ["", *textwrap.wrap(sentence, 78), f"  {context.command_path} {arguments}"]
    lines += ["", f"{context.command_path} --help describes all options."]
    echo_text("\n".join(lines) + "\n")


def _missing_option(context: click.Context, option: str) -> str:
    return f"missing option: {option}; {context.command_path} alone lists what you can choose"


def _reject_options_without_effect(
    context: click.Context, mode: Mode, oldest: Version | None
) -> None:
    """Raise InputError if the user gave an option that has no effect in this mode or release."""
    options_of_user = _options_of_user(context)
    if mode is Mode.WORKLOAD:
        for name, option in (
            ("class_name", "--runtime-class"),
            ("node_selector", _NODE_SELECTOR_OPTION),
        ):
            if name in options_of_user:
                raise InputError(f"{option} has no effect: --mode workload has no RuntimeClass")
    if "oci_runtime" in options_of_user and (
        mode is Mode.WORKLOAD or crio_nodes.inherits_default_runtime(oldest)
    ):
        case = "--mode workload" if mode is Mode.WORKLOAD else "this release of CRI-O"
        raise InputError(f"--oci-runtime has no effect with {case}: nodes keep their own runtime")


def _parse_node_selector(pairs: Iterable[str]) -> dict[str, str]:
    try:
        return parse_labels(pairs)
    except ValueError as error:
        raise InputError(f"{_NODE_SELECTOR_OPTION}: {error}") from None


def _to_yaml(comments: Iterable[str], objects: Iterable[dict[str, Any]]) -> str:
    """Return the objects as YAML for `kubectl apply`, after `comments` as YAML comments."""
    lines: list[str] = []
    for paragraph in comments:
        # A paragraph with line breaks is a file to copy, so its lines are not wrapped.
        wrapped = paragraph.splitlines() if "\n" in paragraph else textwrap.wrap(paragraph, 98)
        lines += wrapped or [""]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    text: str = yaml.dump_all(
        objects, Dumper=KubectlDumper, sort_keys=False, explicit_start=bool(comment)
    )
    return comment + text
