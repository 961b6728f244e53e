"""The provocations of a lost exit code, as handlers of a runtime: `python -m lab.provocation`.

Each provocation has a handler of its own, so that pods choose it by their RuntimeClass and all
provocations run side by side. The default handler stays as it is.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from webhook.linger.build import TARGETS, compile_c, host_arch
from webhook.linger.zig import BuildError

SOURCE = Path(__file__).parent / "src"
_RUNTIME_ROOT = "/run/runc"
DELAY_MS = 400
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Os")
# The oldest release of the GNU C library that Kubernetes' nodes have.
_GLIBC = "2.28"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# containerd ignores the plugin's section of version 2 beside a main file of version 3 that has one.
_PLUGINS = {1: (2, "io.containerd.grpc.v1.cri"), 2: (3, "io.containerd.cri.v1.runtime")}


class Provocation(StrEnum):
    """How the race is provoked. The values are the names in tables and of RuntimeClasses."""

    NATURAL = "natural"
    """Nothing is changed."""
    STATE_FAILS = "F"
    """The runtime's `state` fails once the container has stopped."""
    LATE_EXIT = "S"
    """F, and the exit code is handed over 400 ms late."""


@dataclass(frozen=True, slots=True)
class Provoked:
    """The files of one provocation."""

    provocation: Provocation
    runtime: Path
    """The program in front of the OCI runtime."""
    calls: Path
    """The file that it appends each `start` and `state` to."""
    library: Path | None
    """The library that is loaded into conmon."""


def build(
    runtime: Path, directory: Path, *, for_containerd: bool = False, start_delay_ms: int = 0
) -> list[Provoked]:
    """Compile the provocations for CRI-O or for containerd. `runtime` is the OCI runtime.

    containerd's shim takes conmon's place. It is a static program, into which no library can be
    loaded, so it is stopped for the same time instead.

    With `start_delay_ms`, the runtime's `start` returns that much later. CRI-O queries the state
    after it, so that containers which run a little longer lose their exit code as well.
    """
    found = []
    for provocation in (Provocation.STATE_FAILS, Provocation.LATE_EXIT):
        home, is_late = directory / provocation, provocation is Provocation.LATE_EXIT
        library = home / "late.so" if is_late and not for_containerd else None
        stops_caller = is_late and for_containerd
        made = Provoked(provocation, home / "runtime", home / "calls", library)
        compile_c(
            [SOURCE / "failing_state.c"],
            made.runtime,
            target=TARGETS[host_arch()],
            flags=(
                *_FLAGS,
                "-static",
                f"-DRUNTIME={json.dumps(str(runtime))}",
                f"-DCALLS_FILE={json.dumps(str(made.calls))}",
                f"-DSTART_DELAY_MILLISECONDS={DELAY_MS if stops_caller else start_delay_ms}",
                f"-DSTOPS_CALLER={int(stops_caller)}",
            ),
            directory=SOURCE,
        )
        if library:
            compile_c(
                [SOURCE / "late_exit_file.c"],
                library,
                target=f"{platform.machine()}-linux-gnu.{_GLIBC}",
                flags=(*_FLAGS, "-shared", "-fPIC", f"-DDELAY_MILLISECONDS={DELAY_MS}"),
                directory=SOURCE,
            )
        found.append(made)
    return found


def crio_drop_in(provoked: Sequence[Provoked], conmon: Path) -> str:
    """Return the configuration of CRI-O: a handler for each provocation."""
    lines = []
    for each in provoked:
        environment = [f"PATH={_PATH}"]
        if each.library is not None:
            environment.append(f"LD_PRELOAD={each.library}")
        lines += [
            f"[crio.runtime.runtimes.{class_name(each.provocation)}]",
            f"runtime_path = {json.dumps(str(each.runtime))}",
            'runtime_type = "oci"',
            f"runtime_root = {json.dumps(_RUNTIME_ROOT)}",
            f"monitor_path = {json.dumps(str(conmon))}",
            'monitor_cgroup = "pod"',
            f"monitor_env = {json.dumps(environment)}",
            "",
        ]
    return "\n".join(lines)


def containerd_drop_in(provoked: Sequence[Provoked], major: int) -> str:
    """Return the configuration of a major release of containerd: a handler for each provocation."""
    version, plugin = _PLUGINS[major]
    lines = [f"version = {version}", ""]
    for each in provoked:
        name = class_name(each.provocation)
        lines += [
            f'[plugins."{plugin}".containerd.runtimes.{name}]',
            'runtime_type = "io.containerd.runc.v2"',
            f'[plugins."{plugin}".containerd.runtimes.{name}.options]',
            f"BinaryName = {json.dumps(str(each.runtime))}",
            "",
        ]
    return "\n".join(lines)


def class_name(provocation: Provocation) -> str:
    """Return the name of the RuntimeClass and of the runtime's handler for a provocation."""
    return f"race-{provocation.lower()}"


def runtime_class(provocation: Provocation) -> dict[str, Any]:
    """Return the RuntimeClass of a provocation."""
    name = class_name(provocation)
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
    }


_PROGRAM = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)


@click.command()
@click.argument("out", type=click.Path(file_okay=False, resolve_path=True, path_type=Path))
@click.option("--runtime", type=_PROGRAM, required=True, help="The OCI runtime.")
@click.option("--conmon", type=_PROGRAM, required=True, help="CRI-O's monitor.")
def main(out: Path, runtime: Path, conmon: Path) -> None:
    """Compile the provocations into OUT, and print the configuration of CRI-O that uses them.

    For a node of your own. The RuntimeClasses `race-f` and `race-s` choose between them.
    """
    try:
        click.echo(crio_drop_in(build(runtime, out), conmon))
    except BuildError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="python -m lab.provocation")
