"""CRI-O as the node's runtime, with its files at their usual paths.

It runs inside the node's namespaces only: it writes to /etc and /var.

Where root lacks CAP_SYS_RESOURCE, a pod with `shareProcessNamespace` does not start. Only such pods
have an infra container, whose score for the OOM killer CRI-O lowers. CRI-O has no setting for it.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import httpx

from tests.support.kube.cluster import Json
from tests.support.kube.server import Server
from tests.support.node import cgroups
from tests.support.node.drop_ins import DropIns
from tests.support.node.images import NodeImages, directory
from tests.support.node.network import CNI_PLUGINS
from tests.support.node.registry_server import ADDRESS, SECOND_ADDRESS
from tests.support.waiting import TIMEOUT_SECONDS
from tools.crio import CrioBuild

_CONFIGURATION = Path("/etc/crio/crio.conf.d")
_CONTAINERS = Path("/etc/containers")
# Where CRI-O's own packages have the programs that it starts (cri-o/packaging).
_PACKAGED = Path("/usr/libexec/crio")
_BUNDLES = Path("/run/containers/storage/overlay-containers")


class Crio:
    """A CRI-O. It may be stopped, and started again as another build, while its containers run."""

    name = "cri-o"
    socket = Path("/var/run/crio/crio.sock")
    log = Path("/var/log/crio.log")

    def __init__(self, build: CrioBuild, *, packaged: bool = False) -> None:
        """Prepare a build.

        With `packaged`, the node is laid out as by CRI-O's own packages: conmon and the OCI
        runtimes are not in $PATH, and the default handler, which is crun, names them.
        """
        self.build = build
        """Takes effect at the next start."""
        self._pause_image = NodeImages.of(directory()).pause
        self._packaged = packaged
        self._drop_ins = DropIns(_CONFIGURATION)
        self._server: Server | None = None

    @property
    def version(self) -> str:
        """The release, as nodes print it after `cri-o://`."""
        return self.build.version

    @property
    def default_handler(self) -> str:
        """The settings of the handler for pods without a RuntimeClass."""
        if self._packaged:
            return f"pids_limit = 4096\n{PACKAGED_HANDLER}"
        return handler_settings("runc", _program("runc"), _program("conmon"))

    def add_drop_in(self, name: str, text: str) -> None:
        """Add a file of configuration. The next start writes it."""
        self._drop_ins.add(name, text)

    def remove_drop_in(self, name: str) -> None:
        """Remove a file of configuration. It has effect until the next start."""
        self._drop_ins.remove(name)

    def start(self) -> None:
        """Start CRI-O, and wait until it answers."""
        if self._packaged:
            _lay_out_programs()
        settings = node_settings(self.build.pinns, self.default_handler, self._pause_image)
        self.add_drop_in("00-node.conf", settings)
        self._drop_ins.write()
        _CONTAINERS.mkdir(parents=True, exist_ok=True)
        policy = {"default": [{"type": "insecureAcceptAnything"}]}
        (_CONTAINERS / "policy.json").write_text(json.dumps(policy))
        (_CONTAINERS / "registries.conf").write_text(
            "".join(
                f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
                for registry in (ADDRESS, SECOND_ADDRESS)
            )
        )
        _hide_controllers_without_hierarchy()
        # A new one each time, because the program may be another build.
        path = {"PATH": f"{_PACKAGED}/path"} if self._packaged else {}
        self._server = Server(self.build.crio, (), self.log, path)
        self._server.start()
        self._server.await_that(self._answers)

    def stop(self) -> None:
        """Stop CRI-O. Its containers go on."""
        if self._server is not None:
            self._server.stop()

    def kill(self) -> None:
        """End CRI-O without waiting for the calls that it serves. Its containers go on."""
        if self._server is not None:
            self._server.kill()

    def status_config(self) -> str:
        """Return what `crio status config` prints."""
        command = [str(self.build.crio), "status", "--socket", str(self.socket), "config"]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    def sandbox_annotations(self, pod: Json) -> dict[str, str]:
        """Return the annotations that CRI-O has left on the sandbox of a running pod."""
        (status, *_) = pod["status"]["containerStatuses"]
        container = status["containerID"].removeprefix("cri-o://")
        sandbox = self._inspect(f"containers/{container}")["sandbox"]
        # CRI-O writes the sandbox's configuration for the OCI runtime, even if it starts no
        # container for the sandbox.
        bundle = _BUNDLES / sandbox / "userdata" / "config.json"
        found: dict[str, str] = json.loads(bundle.read_text())["annotations"]
        return found

    def _inspect(self, path: str) -> Json:
        """Query the interface of `crio status`, which is not a part of CRI."""
        # On an emulated processor, the first answer may take longer than httpx waits by default.
        client = httpx.Client(
            base_url="http://crio",
            transport=httpx.HTTPTransport(uds=str(self.socket)),
            timeout=TIMEOUT_SECONDS,
        )
        with client:
            answer = client.get(f"/{path}")
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    def _answers(self) -> bool:
        # httpx leaves the socket open if nothing listens.
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return False
        return bool(self._inspect("info"))


def node_settings(pinns: Path, handler: str, pause_image: str) -> str:
    """Return the settings that a node needs. All others are CRI-O's defaults."""
    return f"""\
[crio]
storage_driver = "overlay"

[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{pinns}"
# CRI-O would load its profile into the kernel, where it would stay.
apparmor_profile = "unconfined"
{handler}
[crio.image]
pause_image = "{pause_image}"

[crio.network]
plugin_dirs = ["{CNI_PLUGINS}"]
"""


def handler_settings(name: str, runtime: Path, conmon: Path, *more: str) -> str:
    """Return the settings of the default handler."""
    lines = (
        f'default_runtime = "{name}"',
        "",
        f"[crio.runtime.runtimes.{name}]",
        f'runtime_path = "{runtime}"',
        f'runtime_root = "/run/{name}"',
        f'monitor_path = "{conmon}"',
        *more,
    )
    return "\n".join(lines) + "\n"


PACKAGED_HANDLER = handler_settings(
    "crun",
    _PACKAGED / "crun",
    _PACKAGED / "conmon",
    'container_min_memory = "500KiB"',
    'allowed_annotations = ["io.containers.trace-syscall", "devices.crio.io"]',
)


# crun of Debian 12 refuses a bundle of a later specification than 1.1. It can write no pids limit
# below 1 either, which is CRI-O's default.
_CRUN = f"""\
#!/bin/sh
known='s/"ociVersion": *"[^"]*"/"ociVersion":"1.0.2"/'
before=
for argument
do
  [ "$before" = --bundle ] && /bin/sed -i "$known" "$argument/config.json"
  before=$argument
done
exec {_PACKAGED}/crun-1.8 "$@"
"""


def _lay_out_programs() -> None:
    """Put the programs where CRI-O's own packages have them, and all others into a $PATH."""
    path = _PACKAGED / "path"
    if path.exists():
        return
    path.mkdir(parents=True)
    moved = ("conmon", "crun", "runc")
    for name in moved:
        shutil.copy2(_program(name), _PACKAGED / name)
    crun = _PACKAGED / "crun"
    crun.rename(_PACKAGED / "crun-1.8")
    crun.write_text(_CRUN)
    crun.chmod(0o755)
    for each in ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]:
        for program in Path(each).glob("*"):
            if program.name not in moved and not (path / program.name).is_symlink():
                (path / program.name).symlink_to(program)


def _program(name: str) -> Path:
    path = shutil.which(name)
    assert path, f"CRI-O: not installed: apt install {name}"
    return Path(path)


def _hide_controllers_without_hierarchy() -> None:
    """Let /proc/cgroups list mounted controllers only, in the namespaces of this process.

    CRI-O sets a limit for huge pages if the kernel has that controller, and runc then fails if no
    hierarchy of version 1 has it.
    """
    actual = Path("/proc/cgroups")
    header, *lines = actual.read_text().splitlines(keepends=True)
    mounted = cgroups.available_controllers()
    kept = [line for line in lines if line.split()[0] in mounted]
    if cgroups.hierarchies()[0].is_version_2 or kept == lines:
        return
    copy = Path("/run/cgroups")
    copy.write_text("".join([header, *kept]))
    subprocess.run(["mount", "--bind", str(copy), str(actual)], check=True)
