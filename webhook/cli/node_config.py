"""The command `podsettle node-config`, which prints configuration for nodes and a RuntimeClass."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
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
from webhook.node_config.crio import Mode, NodeHandler
from webhook.node_config.crio_default_handler import ConfigError, DefaultHandler
from webhook.node_config.distributions import (
    Distribution,
    open_files_document,
    volatile_document,
)
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
        "Skip the relabelling of volumes for pods that have the annotation and the RuntimeClass, "
        "on OpenShift.",
        "--selinux",
    ),
    _Choice(
        "Skip it for pods that have the annotation. There is no RuntimeClass. This is the default "
        "for nodes that are not OpenShift's.",
        "--selinux -o dropin",
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
    help="Which pods skip the relabelling. handler: pods with the annotation and the RuntimeClass. "
    "workload: pods with the annotation. default-annotations: pods with the RuntimeClass.  "
    "[default: handler; workload with -o dropin]",
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
    help="The OCI runtime of the handler. OpenShift from CRI-O 1.31.3 on uses its own default.  "
    "[default: crun; runc with -o machineconfig and -o all]",
)
@click.option(
    "--crio-config",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="What `crio status config` prints on one of the nodes; - is standard input. The handler "
    "gets the settings of that node's default handler: its OCI runtime, its monitor, its smallest "
    "memory limit and the annotations that it allows. Without the file, the paths are those of "
    "CRI-O's own packages with -o dropin, and OpenShift's otherwise.",
)
@_oldest_option("CRI-O", crio_nodes.parse_release)
@node_selector_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["machineconfig", "dropin", "runtimeclass", "all"]),
    default="all",
    show_default=True,
    help="machineconfig: for OpenShift. dropin: for other nodes. all: the MachineConfig and the "
    "RuntimeClass, with the drop-in for other nodes and notes in comments.",
)
@click.pass_context
def crio(
    context: click.Context,
    selinux: bool,
    volatile: bool,
    open_files: tuple[int, int] | None,
    mode: str | None,
    handler: str,
    class_name: str,
    role: str,
    oci_runtime: str | None,
    crio_config: str | None,
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
    chosen = Mode(mode or (Mode.WORKLOAD if output == "dropin" else Mode.HANDLER))
    if chosen is Mode.WORKLOAD:
        _reject_options_of_handlers(context)
    default_handler = None if crio_config is None else _default_handler(crio_config)
    other = NodeHandler(oldest, oci_runtime, default_handler)
    openshift = replace(other, is_openshift=True)
    if "oci_runtime" in _options_of_user(context):
        _reject_oci_runtime_without_effect(other if output == "dropin" else openshift)
    try:
        drop_in = crio_nodes.selinux_drop_in(chosen, handler, other)
        on_openshift = crio_nodes.selinux_drop_in(chosen, handler, openshift)
    except UnsupportedError as error:
        raise InputError(str(error)) from None
    if output == "dropin":
        echo_text(drop_in)
        return
    objects = []
    if output in ("machineconfig", "all"):
        objects.append(crio_nodes.machine_config(role, on_openshift))
    if output in ("runtimeclass", "all"):
        if chosen is not Mode.WORKLOAD:
            selector = _parse_node_selector(node_selector)
            annotations = crio_nodes.class_annotations(other)
            objects.append(runtime_class_manifest(class_name, handler, selector, annotations))
        elif output == "runtimeclass":
            raise InputError("--mode workload needs no RuntimeClass")
    comments: tuple[str, ...] = ()
    if output == "all":
        caveats = crio_nodes.caveats(chosen, role, oldest)
        where = f"{crio_nodes.DROP_IN}, on each node that is not OpenShift's:"
        comments = (*caveats, "", where, "", drop_in)
    echo_text(_to_yaml(comments, objects))


def _default_handler(file: str) -> DefaultHandler:
    try:
        with click.open_file(file, encoding="utf-8") as opened:
            return DefaultHandler.read(opened.read())
    except OSError as error:
        raise InputError(f"--crio-config: {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--crio-config: {file}: is not text in UTF-8") from None
    except ConfigError as error:
        raise InputError(f"--crio-config: {file}: {error}") from None


@node_config.command()
@click.option("--volatile", is_flag=True, help="Make overlayfs mounts volatile.")
@open_files_option
@click.option(
    "--for",
    "distribution",
    type=click.Choice([each.value for each in Distribution]),
    help="With --open-files or -o dropin, print the form that a distribution takes in place of a "
    "file. eks: a NodeConfig for nodes with Amazon Linux 2023. talos: a machine configuration "
    "patch. Other distributions take the file.",
)
@click.option(
    "--config-version",
    type=click.Choice([str(version) for version in containerd_nodes.CONFIG_VERSIONS]),
    help="The version of the drop-in. The default, 2, works with every containerd. 3 needs "
    "containerd 2.0, and before 2.3 a main configuration of version 3. 4 needs containerd 2.3.",
)
@click.option(
    "--handler",
    default="runc",
    show_default=True,
    metavar="NAME",
    callback=_check_label_name,
    help="The nodes' default runtime handler: default_runtime_name in containerd config dump.",
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
    distribution: str | None,
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
    if open_files is not None and distribution is not None:
        _reject_other_options(context, {"open_files", "distribution"})
        echo_text(open_files_document(Distribution(distribution), *open_files))
        return
    if open_files is not None:
        _print_unit_drop_in(context, "containerd.service", open_files)
        return
    if not volatile:
        raise InputError(_missing_option(context, "--volatile"))
    if distribution is not None and output != "dropin":
        raise InputError("--for is another form of the drop-in: add -o dropin")
    if distribution is not None and config_version is not None:
        raise InputError(
            f"--config-version has no effect with --for {distribution}: the version is that of the "
            "distribution's own file"
        )
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
    if distribution is not None:
        echo_text(volatile_document(Distribution(distribution), drop_in))
        return
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
    _reject_other_options(context, {"open_files"})
    comment = _to_yaml(open_files_of_nodes.caveats(unit), ())
    echo_text(comment + open_files_of_nodes.unit_drop_in(*limits))


def _reject_other_options(context: click.Context, names: set[str]) -> None:
    """Raise InputError if the user gave an option beside those that go with limits."""
    if not _options_of_user(context) <= names:
        raise InputError(f"{_OPEN_FILES_OPTION} takes no other option")


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


def _reject_options_of_handlers(context: click.Context) -> None:
    """Raise InputError if the user gave an option that has no effect without a handler."""
    options_of_user = _options_of_user(context)
    for name, option, lacks in (
        ("class_name", "--runtime-class", "RuntimeClass"),
        ("node_selector", _NODE_SELECTOR_OPTION, "RuntimeClass"),
        ("crio_config", "--crio-config", "handler"),
        ("oci_runtime", "--oci-runtime", "handler"),
    ):
        if name in options_of_user:
            raise InputError(
                f"{option} has no effect: --mode workload has no {lacks}; give --mode handler"
            )


def _reject_oci_runtime_without_effect(node: NodeHandler) -> None:
    if node.default_handler is not None:
        case = "--crio-config"
    elif crio_nodes.inherits_default_runtime(node):
        case = "this release of CRI-O"
    else:
        return
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
