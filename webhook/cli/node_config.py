"""The command `podsettle node-config`, which prints configuration for nodes and a RuntimeClass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import click
from click.core import ParameterSource

from webhook.cli.commented_yaml import as_comment, objects_yaml
from webhook.cli.echo import echo_text
from webhook.cli.options import InputError, Parsed, output_option, parse_label_options
from webhook.core.constants import DNS_LABEL
from webhook.core.defects.versions import Version
from webhook.core.types import Json, TextPattern
from webhook.node_config import containerd as containerd_nodes
from webhook.node_config import crio as crio_nodes
from webhook.node_config import open_files as open_files_of_nodes
from webhook.node_config.crio import Mode, NodeHandler
from webhook.node_config.crio_default_handler import ConfigError, DefaultHandler
from webhook.node_config.distributions import Distribution, open_files_document, volatile_document
from webhook.node_config.runtime_class_manifest import runtime_class_manifest
from webhook.node_config.runtime_release import UnsupportedError

_LABEL = TextPattern(DNS_LABEL, "is not a DNS label: use lower-case letters, digits and '-'")
_SUBDOMAIN = TextPattern(rf"{DNS_LABEL}(\.{DNS_LABEL})*", "is not a DNS subdomain", max_length=253)
"""A DNS subdomain whose labels have at most 63 characters each. DNS_SUBDOMAIN has no lengths."""


def _options(
    runtime: str,
    parse_release: Callable[[str], Version],
    handler: tuple[str, str],
    class_name: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options that both runtimes have.

    `handler` is the default of --handler and its help, and `class_name` that of --runtime-class.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option(
                "--node-selector",
                multiple=True,
                metavar="KEY=VALUE",
                callback=parse_label_options,
                help="A label of the nodes that get the configuration. Can be repeated. Pods of "
                "the RuntimeClass run only on nodes that have all these labels.",
            ),
            click.option(
                "--oldest",
                type=Parsed("version", parse_release),
                help=f"The oldest {runtime} release on the nodes that get the configuration. "
                "kubectl get nodes -o wide shows the releases. Without this option, the output is "
                "valid for all supported releases.",
            ),
            click.option(
                "--runtime-class",
                "class_name",
                default=class_name,
                metavar="NAME",
                type=Parsed("name", _SUBDOMAIN.check),
                help="The name of the RuntimeClass, which policies use.",
            ),
            click.option(
                "--handler",
                default=handler[0],
                metavar="NAME",
                type=Parsed("name", _LABEL.check),
                help=handler[1],
            ),
            click.option(
                "--open-files",
                type=Parsed("limits", open_files_of_nodes.parse_limits),
                metavar="SOFT:HARD",
                help="Print a drop-in that gives every container these limits on open files.",
            ),
        ):
            command = option(command)
        return command

    return add


_NO_OTHER_OPTION = "--open-files takes no other option"
_OPEN_FILES_CHOICE = """
Give every container these limits on open files. There is no RuntimeClass.
  {path} --open-files 65536:524288
"""
_CRIO_CHOICES = """\
What are the nodes to do, and for which pods?

Skip the relabelling of volumes for pods that have the annotation and the
RuntimeClass, on OpenShift.
  {path} --selinux

Skip it for pods that have the annotation. There is no RuntimeClass. This is
the default for nodes that are not OpenShift's.
  {path} --selinux -o dropin

Skip it for every pod of the RuntimeClass, with or without the annotation.
Every node needs CRI-O 1.31.4, 1.32.0 or later.
  {path} --selinux --mode default-annotations --oldest 1.32
"""
_CONTAINERD_CHOICES = """\
What are the nodes to do?

Mount the root filesystem of every container with the option volatile, so that
its umount writes nothing back. The label selects the nodes: give them one of
your own.
  {path} --volatile --node-selector rootfs=volatile
"""


_OPTIONS_OF_HANDLERS = {
    "class_name": ("--runtime-class", "RuntimeClass"),
    "node_selector": ("--node-selector", "RuntimeClass"),
    "crio_config": ("--crio-config", "handler"),
    "oci_runtime": ("--oci-runtime", "handler"),
}
"""The options without effect in the mode `workload`, and what that mode lacks."""


@click.group("node-config")
def node_config() -> None:
    """Print configuration for nodes, and the RuntimeClass that belongs to it."""


@node_config.command()
@click.option(
    "--selinux", is_flag=True, help="Allow pods to skip the relabelling of their volumes."
)
@click.option("--volatile", is_flag=True, hidden=True)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="Which pods skip the relabelling. handler: pods with the annotation and the RuntimeClass. "
    "workload: pods with the annotation. default-annotations: pods with the RuntimeClass.  "
    "[default: handler; workload with -o dropin]",
)
@click.option(
    "--role",
    default="worker",
    metavar="NAME",
    type=Parsed("name", _LABEL.check),
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
@_options(
    "CRI-O",
    crio_nodes.parse_release,
    (
        "selinux-fix-runtime",
        "The name of the runtime handler or workload in CRI-O's configuration.",
    ),
    "selinux-fix-runtime-class",
)
@output_option(
    "all",
    "machineconfig",
    "dropin",
    "runtimeclass",
    about="machineconfig: for OpenShift. dropin: for other nodes. all: the MachineConfig and the "
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
    node_selector: dict[str, str],
    output: str,
) -> None:
    """Print configuration for CRI-O.

    Without options, it lists what you can choose, with the command for each.
    """
    if volatile:
        raise InputError("--volatile is not needed: CRI-O uses volatile mounts since 1.22")
    given = _options_of_user(context)
    if not given:
        _print_choices(context, _CRIO_CHOICES)
        return
    if open_files is not None:
        if not given <= {"open_files", "output", "role"}:
            raise InputError(_NO_OTHER_OPTION)
        drop_in = open_files_of_nodes.crio_drop_in(*open_files)
        if output == "machineconfig":
            _print((), [crio_nodes.machine_config(role, drop_in, open_files_of_nodes.CRIO_DROP_IN)])
        elif output == "runtimeclass":
            raise InputError("--open-files needs no RuntimeClass")
        else:
            notes = open_files_of_nodes.CRIO_CAVEATS if output == "all" else ()
            echo_text(as_comment(notes) + drop_in)
        return
    if not selinux:
        raise InputError(_missing_option(context, "--selinux"))
    chosen = Mode(mode or (Mode.WORKLOAD if output == "dropin" else Mode.HANDLER))
    if chosen is Mode.WORKLOAD:
        for name, (option, lacks) in _OPTIONS_OF_HANDLERS.items():
            if name in given:
                raise InputError(
                    f"{option} has no effect: --mode workload has no {lacks}; give --mode handler"
                )
    default_handler = None if crio_config is None else _default_handler(crio_config)
    other = NodeHandler(oldest, oci_runtime, default_handler)
    openshift = replace(other, is_openshift=True)
    shown = other if output == "dropin" else openshift
    if oci_runtime and (default_handler or crio_nodes.inherits_default_runtime(shown)):
        case = "--crio-config" if default_handler else "this release of CRI-O"
        raise InputError(f"--oci-runtime has no effect with {case}: nodes keep their own runtime")
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
            annotations = crio_nodes.class_annotations(other)
            objects.append(runtime_class_manifest(class_name, handler, node_selector, annotations))
        elif output == "runtimeclass":
            raise InputError("--mode workload needs no RuntimeClass")
    where = f"{crio_nodes.DROP_IN}, on each node that is not OpenShift's:"
    comments = (*crio_nodes.caveats(chosen, role, other), "", where, "", drop_in)
    _print(comments if output == "all" else (), objects)


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
@_options(
    "containerd",
    containerd_nodes.parse_release,
    ("runc", "The nodes' default runtime handler: default_runtime_name in containerd config dump."),
    "overlay-volatile",
)
@output_option(
    "all",
    "dropin",
    "runtimeclass",
    about="all: the RuntimeClass, with the drop-in and notes in comments.",
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
    node_selector: dict[str, str],
    output: str,
) -> None:
    """Print configuration for containerd.

    Without options, it lists what you can choose, with the command for each.
    """
    given = _options_of_user(context)
    if not given:
        _print_choices(context, _CONTAINERD_CHOICES)
        return
    if open_files is not None:
        if not given <= {"open_files", "distribution"}:
            raise InputError(_NO_OTHER_OPTION)
        if distribution is not None:
            echo_text(open_files_document(Distribution(distribution), *open_files))
            return
        notes = as_comment(open_files_of_nodes.CONTAINERD_CAVEATS)
        echo_text(notes + open_files_of_nodes.containerd_drop_in(*open_files))
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
    where = f"{containerd_nodes.DROP_IN}, on each node:"
    comments = (*containerd_nodes.caveats(version), "", where, "", drop_in)
    runtime_class = runtime_class_manifest(class_name, handler, node_selector)
    _print(comments if output == "all" else (), [runtime_class])


def _print(comments: Collection[str], objects: Iterable[Json]) -> None:
    echo_text(as_comment(comments), objects_yaml(objects, explicit_start=bool(comments)))


def _print_choices(context: click.Context, choices: str) -> None:
    text = f"{choices}{_OPEN_FILES_CHOICE}\n{{path}} --help describes all options.\n"
    echo_text(text.format(path=context.command_path))


def _options_of_user(context: click.Context) -> set[str]:
    """Return the names of the options that the user gave."""
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }


def _missing_option(context: click.Context, option: str) -> str:
    return f"missing option: {option}; {context.command_path} alone lists what you can choose"
