"""The provocations as files and as configuration of a runtime: `python -m race.provocation`.

Each provocation is a handler of the runtime of its own, so that pods choose it by their
RuntimeClass and all provocations run side by side. The default handler stays as it is.
"""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import click

from race.cells import Provocation
from race.pods import runtime_class_name
from webhook.linger.build import TARGETS, compile_c, host_arch
from webhook.linger.zig import BuildError

SOURCE = Path(__file__).parent / "src"
DELAY_MS = 400
PROVOKED = (Provocation.STATE_FAILS, Provocation.LATE_EXIT)
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Os")
# The oldest release of the GNU C library that Kubernetes' nodes have.
_GLIBC = "2.28"


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


def build_for_crio(runtime: Path, directory: Path, start_delay_ms: int = 0) -> list[Provoked]:
    """Compile the provocations for CRI-O. `runtime` is the OCI runtime.

    With `start_delay_ms`, the runtime's `start` returns that much later. CRI-O queries the state
    after it, so that containers which run a little longer lose their exit code as well.
    """
    return [
        _build(provocation, runtime, directory, start_delay_ms=start_delay_ms)
        for provocation in PROVOKED
    ]


def build_for_containerd(runtime: Path, directory: Path) -> list[Provoked]:
    """Compile the provocations for containerd. `runtime` is the OCI runtime.

    The shim takes conmon's place. It is a static program, into which no library can be loaded, so
    it is stopped for the same time instead.
    """
    state_fails, late_exit = PROVOKED
    return [
        _build(state_fails, runtime, directory),
        _build(late_exit, runtime, directory, start_delay_ms=DELAY_MS, stops_caller=True),
    ]


def _build(
    provocation: Provocation,
    runtime: Path,
    directory: Path,
    *,
    start_delay_ms: int = 0,
    stops_caller: bool = False,
) -> Provoked:
    home = directory / provocation
    program, calls, library = home / "runtime", home / "calls", home / "late_exit_file.so"
    compile_c(
        [SOURCE / "failing_state.c"],
        program,
        target=TARGETS[host_arch()],
        flags=(
            *_FLAGS,
            "-static",
            f"-DRUNTIME={json.dumps(str(runtime))}",
            f"-DCALLS_FILE={json.dumps(str(calls))}",
            f"-DSTART_DELAY_MILLISECONDS={start_delay_ms}",
            f"-DSTOPS_CALLER={int(stops_caller)}",
        ),
        directory=SOURCE,
    )
    loads_library = provocation is Provocation.LATE_EXIT and not stops_caller
    if loads_library:
        compile_c(
            [SOURCE / "late_exit_file.c"],
            library,
            target=f"{platform.machine()}-linux-gnu.{_GLIBC}",
            flags=(*_FLAGS, "-shared", "-fPIC", f"-DDELAY_MILLISECONDS={DELAY_MS}"),
            directory=SOURCE,
        )
    return Provoked(provocation, program, calls, library if loads_library else None)


def crio_drop_in(provoked: list[Provoked], runtime_root: Path, conmon: Path) -> str:
    """Return the configuration of CRI-O: a handler for each provocation."""
    lines = []
    for each in provoked:
        environment = [f"PATH={_PATH}"]
        if each.library is not None:
            environment.append(f"LD_PRELOAD={each.library}")
        lines += [
            f"[crio.runtime.runtimes.{runtime_class_name(each.provocation)}]",
            f"runtime_path = {json.dumps(str(each.runtime))}",
            'runtime_type = "oci"',
            f"runtime_root = {json.dumps(str(runtime_root))}",
            f"monitor_path = {json.dumps(str(conmon))}",
            'monitor_cgroup = "pod"',
            f"monitor_env = {json.dumps(environment)}",
            "",
        ]
    return "\n".join(lines)


def containerd_drop_in(provoked: list[Provoked], major: int) -> str:
    """Return the configuration of a major release of containerd: a handler for each provocation.

    containerd ignores the CRI plugin's section of version 2 beside a main file of version 3 that
    has such a section.
    """
    version, plugin = (2, "io.containerd.grpc.v1.cri") if major == 1 else (3, _CRI_RUNTIME)
    lines = [f"version = {version}", ""]
    for each in provoked:
        name = runtime_class_name(each.provocation)
        handler = f'plugins."{plugin}".containerd.runtimes.{name}'
        lines += [
            f"[{handler}]",
            'runtime_type = "io.containerd.runc.v2"',
            f"[{handler}.options]",
            f"BinaryName = {json.dumps(str(each.runtime))}",
            "",
        ]
    return "\n".join(lines)


_CRI_RUNTIME = "io.containerd.cri.v1.runtime"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--runtime", default="runc", show_default=True, help="The OCI runtime.")
@click.option("--conmon", default="conmon", show_default=True, help="CRI-O's monitor.")
@click.option(
    "--containerd",
    "major",
    type=click.IntRange(1, 2),
    help="For containerd of this major release, not for CRI-O.",
)
def main(out: Path, runtime: str, conmon: str, major: int | None) -> None:
    """Compile the provocations into OUT, and print the configuration that uses them.

    For a node of your own. The RuntimeClasses `race-f` and `race-s` choose between them.
    """
    found, monitor = shutil.which(runtime), shutil.which(conmon)
    if found is None:
        raise click.ClickException(f"{runtime} is not found: give its path with --runtime")
    if monitor is None and major is None:
        raise click.ClickException(f"{conmon} is not found: give its path with --conmon")
    build = build_for_crio if major is None else build_for_containerd
    try:
        provoked = build(Path(found), out.absolute())
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    if major is not None:
        click.echo(containerd_drop_in(provoked, major))
    elif monitor is not None:
        click.echo(crio_drop_in(provoked, Path("/run/runc"), Path(monitor)))


if __name__ == "__main__":
    main(prog_name="python -m race.provocation")
