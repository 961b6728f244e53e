"""CRI-O in the virtual machine: its configuration, its volumes, and starts of containers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from tests.support.node.crio import handler_settings, node_settings
from tests.support.vm.image import BUSYBOX_IMAGE, CRIO, FILES_PER_DIRECTORY, VOLUMES
from tests.support.vm.machine import Machine
from webhook.node_config.crio import DROP_IN

Json = dict[str, Any]

RUNC = Path("/usr/bin/runc")
FILE_TYPE, WRONG_TYPE = "container_file_t", "etc_t"
_SOCKET = "/run/crio/crio.sock"
_CONFIGURATION = Path(DROP_IN).parent
# The machine has no iptables.
_SELINUX = "[crio.runtime]\nselinux = true\ndisable_hostport_mapping = true\n"
_POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'
_NETWORK = """\
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.88.0.0/16"}}]}"""
# CRI-O is a child of the shell, until the script ends: the shell learns that it ended.
_RESTART = f"""\
if [ -e /run/crio.process ]; then
  process=$(cat /run/crio.process)
  kill "$process" 2>/dev/null || true
  while kill -0 "$process" 2>/dev/null; do sleep 0.1; done
fi
rm -rf {_CONFIGURATION} {_SOCKET}
mkdir -p {_CONFIGURATION} /etc/containers /etc/cni/net.d
cp /share/crio.conf.d/* {_CONFIGURATION}
cp /share/policy.json /etc/containers
cp /share/pods.conflist /etc/cni/net.d
setsid {CRIO}/$release/crio >/run/crio.log 2>&1 &
echo $! >/run/crio.process
until cri {_SOCKET} version 2>/dev/null; do
  sleep 0.1
  if ! kill -0 $! 2>/dev/null; then
    tail -n 1 /run/crio.log
    break
  fi
done
"""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a container."""

    error: str
    """Of the call that failed, or empty."""
    create_seconds: float
    """The time of CreateContainer."""
    process_label: str
    """With which the container runs."""
    written: int
    """How many files and directories of the volume got a label."""
    nested_label: str
    """Of the file of the volume that `mislabel` changes."""


DEFAULT_HANDLER = handler_settings("runc", RUNC, Path("/usr/bin/conmon"))


class CrioNode:
    """A node whose CRI-O can be replaced and configured."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def restart(self, release: str, drop_in: str = "") -> str:
        """Start CRI-O in place of the one that runs. Return its version.

        If it does not start, the answer is the last line of its log.
        """
        files = {
            "00-node.conf": node_settings(CRIO / release / "pinns", DEFAULT_HANDLER, BUSYBOX_IMAGE),
            "01-selinux.conf": _SELINUX,
        }
        if drop_in:
            files[Path(DROP_IN).name] = drop_in
        directory = self._machine.share / "crio.conf.d"
        directory.mkdir(exist_ok=True)
        for left in directory.iterdir():
            left.unlink()
        for name, text in files.items():
            (directory / name).write_text(text)
        (self._machine.share / "policy.json").write_text(_POLICY)
        (self._machine.share / "pods.conflist").write_text(_NETWORK)
        return self._machine.run(f"release={release}\n{_RESTART}").strip()

    def label(self, volume: str, level: str) -> None:
        """Give each file of a volume the label that a container of this level needs."""
        label = f"system_u:object_r:{FILE_TYPE}:{level}"
        self._machine.run(f"chcon -R {label} {VOLUMES / volume}")

    def mislabel(self, volume: str) -> None:
        """Give one file below the top directory of a volume a wrong label."""
        self._machine.run(f"chcon -t {WRONG_TYPE} {_nested(volume)}")

    def warm(self, volume: str) -> None:
        """Read the label of each file of a volume, so that later reads come from the caches."""
        self._machine.run(f"find {VOLUMES / volume} -context '*' >/dev/null")

    def start(self, request: Json, volume: str = "", *, drop_caches: bool = False) -> Start:
        """Start a container and remove it. `volume` is the one to look at."""
        written = json.dumps(request | {"drop_caches": drop_caches})
        (self._machine.share / "request.json").write_text(written)
        script = f"touch /run/mark; cri {_SOCKET} start </share/request.json\n"
        if volume:
            script += f"find {VOLUMES / volume} -cnewer /run/mark | wc -l\n"
            script += f"stat -c %C {_nested(volume)}\n"
        else:
            script += "echo 0; echo none\n"
        return parse_start(self._machine.run(script))

    def describe(self) -> dict[str, str]:
        """Return the versions of what runs in the machine."""
        lines = self._machine.run(
            "uname -r; runc --version | head -n 1; dpkg-query -Wf '${Version}\\n' "
            "selinux-policy-default; cat /sys/fs/selinux/enforce"
        ).splitlines()
        kernel, runc, policy, enforce = lines
        return {
            "kernel": kernel,
            "runc": runc.rpartition(" ")[2],
            "selinux-policy-default": policy,
            "SELinux": "enforcing" if enforce == "1" else "permissive",
        }


def parse_start(output: str) -> Start:
    """Return what the script of a start has printed.

    Raises BenchError if it is something else.
    """
    try:
        first, written, nested_label = output.splitlines()
        answer = json.loads(first)
        status = answer["status"] or {}
        info = json.loads(status.get("info", "{}"))
        process = info.get("runtimeSpec", {}).get("process", {})
        return Start(
            error=answer["error"],
            create_seconds=answer["create_seconds"],
            process_label=process.get("selinuxLabel", ""),
            written=int(written),
            nested_label=nested_label,
        )
    except (ValueError, KeyError) as error:
        raise BenchError(f"the start of a container printed: {output}") from error


def _nested(volume: str) -> Path:
    number = FILES_PER_DIRECTORY // 2
    return VOLUMES / volume / "0" / str(number)
