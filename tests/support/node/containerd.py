"""containerd as the node's runtime, with its files at their usual paths."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess

from tests.support.kube.server import Server
from tests.support.node.drop_ins import DropIns
from tests.support.node.images import NodeImages, directory
from tests.support.node.network import CNI_PLUGINS
from tests.support.node.node_paths import USUAL, NodePaths
from tools.build import containerd

# `opt` is /opt/containerd by default, a directory of the machine. A containerd with AppArmor loads
# a profile into the kernel, where it would stay. Where root lacks CAP_SYS_RESOURCE, no process can
# lower its score for the OOM killer, so pods get at least containerd's own.
_COMMON = """\
imports = ["{drop_ins}/*.toml"]
root = "{paths.data}"
state = "{paths.state}"

{server}
[plugins.'{opt}']
  path = "{paths.data}/opt"
"""
_SERVER_BEFORE_VERSION_4 = """\
[grpc]
  address = "{socket}"
"""
# In version 4, containerd does not derive the address for ttrpc from the other one.
_SERVER = """\
[plugins.'io.containerd.server.v1.grpc']
  address = "{socket}"
[plugins.'io.containerd.server.v1.ttrpc']
  address = "{socket}.ttrpc"
"""
_VERSION_1 = """\
{common}
[plugins.cri]
  disable_apparmor = true
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  [plugins.cri.cni]
    bin_dir = "{plugins}"
  [plugins.cri.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.cri.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""
_VERSION_2 = """\
version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""
_VERSION_3_OR_4 = """\
version = {version}
{common}
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""


class Containerd:
    """A containerd of a release line that is built: see tools/build.py."""

    name = "containerd"

    def __init__(
        self,
        line: str,
        *,
        config_version: int | None = None,
        paths: NodePaths = USUAL,
    ) -> None:
        """Prepare a release.

        `config_version` is the version of the main file, the newest without it. A file of version 1
        does not state it.
        """
        self.line = line
        self.paths = paths
        self.socket = paths.state / "containerd.sock"
        self.log = paths.logs / "containerd.log"
        self._pause_image = NodeImages.of(directory()).pause
        self._config_version = config_version or (2 if line == "1.7" else 4)
        self._file = paths.configuration / "config.toml"
        self._conf_d = paths.configuration / "conf.d"
        self._drop_ins = DropIns(self._conf_d)
        self._program = containerd(line)
        # containerd takes its shim from PATH, where a package of Debian may have put another one.
        path = f"{self._program.parent}:{os.environ['PATH']}"
        flags = [f"--config={self._file}"]
        self._server = Server(self._program, flags, self.log, {"PATH": path})

    @property
    def version(self) -> str:
        """The release, such as `2.4.2`."""
        said = subprocess.run(
            [str(self._program), "--version"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"v(\d+\.\d+\.\d+)", said)
        assert found, said
        return found[1]

    def add_drop_in(self, name: str, text: str) -> None:
        """Add a file of configuration. The next start writes it."""
        self._drop_ins.add(name, text)

    def remove_drop_in(self, name: str) -> None:
        """Remove a file of configuration. It has effect until the next start."""
        self._drop_ins.remove(name)

    def start(self) -> None:
        """Start containerd, and wait until it answers."""
        self._drop_ins.write()
        self._file.write_text(self._configuration())
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._server.start()
        self._server.await_that(self._accepts)

    def stop(self) -> None:
        """Stop containerd. Its containers go on."""
        self._server.stop()

    def _configuration(self) -> str:
        runc = shutil.which("runc")
        assert runc, "containerd: runc is not installed: apt install runc"
        version = self._config_version
        opt = "opt" if version == 1 else "io.containerd.internal.v1.opt"
        server = _SERVER if version == 4 else _SERVER_BEFORE_VERSION_4
        return {1: _VERSION_1, 2: _VERSION_2}.get(version, _VERSION_3_OR_4).format(
            common=_COMMON.format(
                drop_ins=self._conf_d,
                opt=opt,
                paths=self.paths,
                server=server.format(socket=self.socket),
            ),
            pause=self._pause_image,
            plugins=CNI_PLUGINS,
            runc=runc,
            version=version,
        )

    def _accepts(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return False
            return True
