"""CRI-O's relabelling of volumes, in a virtual machine with SELinux.

CRI-O visits every file of a volume at each start of a container. It has the configuration of
`podsettle node-config crio --selinux`, and gets the sandboxes and containers that a kubelet makes
of pods settled by podsettle.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import click
import yaml

from lab.cluster import POLICY_LABEL, policy
from lab.report import Json, LabError, Outcome, Row, Table, experiment, values
from tests.support.node.crio import handler_settings, node_settings
from tests.support.node_config import CRIO as NODE_CONFIG
from tests.support.node_config import printed, selinux_drop_in
from tests.support.process import podsettle
from tests.support.vm.image import (
    BUSYBOX_IMAGE,
    CRIO,
    FILES_PER_DIRECTORY,
    RELEASES,
    SIZES,
    VOLUMES,
)
from tests.support.vm.machine import Machine, selinux_machine
from tools.crio import AFFECTED, NEW_SPELLING
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.node_config.crio import DROP_IN

FILE_TYPE, WRONG_TYPE = "container_file_t", "etc_t"
LEVEL, OTHER_LEVEL = "s0:c123,c456", "s0:c7,c8"
MAX_SETTLED_RATIO, MIN_UNSETTLED_RATIO = 1.5, 3.0
"""Of the later starts with the largest volume, to those with the smallest one."""
DEFAULT_HANDLER = handler_settings("runc", Path("/usr/bin/runc"), Path("/usr/bin/conmon"))
_OLD, _NEW = SKIP_RELABEL_ANNOTATIONS
_SMALL, _LARGE = min(SIZES), max(SIZES)
# Of the cases. Before each start one nested file gets a wrong label.
_VOLUME = "small"
_SOCKET = "/run/crio/crio.sock"
_CONFIGURATION = Path(DROP_IN).parent
# The machine has no iptables.
_SELINUX = "[crio.runtime]\nselinux = true\ndisable_hostport_mapping = true\n"
_SIGNATURES = '{"default": [{"type": "insecureAcceptAnything"}]}'
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
# The values of `NamespaceMode` in the CRI.
_POD, _CONTAINER = 0, 1
_uids = count(1)

# What CRI-O does to a pod.
SKIPS, WALKS = "skips", "visits each file"
NO_START, NO_HANDLER = "CRI-O does not start", "failed to find runtime handler"

# Names of pods, as the table shows them.
UNSETTLED = "not settled"
SETTLED = "settled"
WITHOUT_CLASS = "settled by a policy without a class"
CLASS_ALONE = "settled by `runtimeClass` alone"
ON_CONTAINER = "the class, and the annotation on the container alone"
CAPITAL = "settled, the value `True`"
ANOTHER_LEVEL = "settled, another level"
NO_LEVEL = "settled, no level"
OLD_MISSPELT = "settled, the old spelling misspelt"
NEW_MISSPELT = "settled, the new spelling misspelt"
_MISSPELT = {
    "settled, both annotations misspelt": (_OLD, _NEW),
    OLD_MISSPELT: (_OLD,),
    NEW_MISSPELT: (_NEW,),
}

NO_DROP_IN, NOT_ALLOWED = "no drop-in", "--mode handler, annotation not allowed"


def expected_outcomes(release: str) -> Mapping[str, Mapping[str, str]]:
    """Return what a release does under each configuration to pods, by the names of both.

    A configuration is the options of `podsettle node-config crio --selinux`.
    """
    is_new = release == NEW_SPELLING
    newer = SKIPS if is_new else NO_HANDLER
    unlike = (CLASS_ALONE, ON_CONTAINER, *_MISSPELT, CAPITAL, ANOTHER_LEVEL, NO_LEVEL)
    walks = dict.fromkeys((UNSETTLED, WITHOUT_CLASS, *unlike), WALKS)
    workload = "--mode workload"
    annotations = "--mode default-annotations --oldest"
    return {
        NO_DROP_IN: {UNSETTLED: WALKS, SETTLED: NO_HANDLER, WITHOUT_CLASS: WALKS},
        "--mode handler": {**walks, SETTLED: SKIPS, NEW_MISSPELT: SKIPS},
        NOT_ALLOWED: {SETTLED: WALKS},
        "--oldest 1.30.0": {SETTLED: SKIPS},
        "--oldest 1.33.0": {SETTLED: SKIPS},
        "--oldest 1.35.0": {SETTLED: newer, OLD_MISSPELT: newer},
        workload: {UNSETTLED: WALKS, WITHOUT_CLASS: SKIPS},
        f"{workload} --oldest 1.35.0": {WITHOUT_CLASS: SKIPS if is_new else NO_START},
        f"{annotations} 1.33.0": {UNSETTLED: WALKS, CLASS_ALONE: SKIPS},
        f"{annotations} 1.35.0": {CLASS_ALONE: SKIPS},
    }


def _drop_in(configuration: str) -> str:
    """Return the text of the drop-in, or nothing."""
    if configuration == NO_DROP_IN:
        return ""
    text = selinux_drop_in(DEFAULT_HANDLER, *configuration.partition(",")[0].split())
    if configuration == NOT_ALLOWED:
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if "allowed_annotations" not in line)
    return text


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a container."""

    error: str
    """Of the call that failed, or empty."""
    seconds: float
    """The time of CreateContainer."""
    written: int
    """How many files and directories of the volume got a label."""
    nested_label: str
    """Of the file of the volume that a case mislabels."""

    @property
    def outcome(self) -> str:
        """What CRI-O did to a volume with a wrong label in it."""
        if self.error:
            return NO_HANDLER if NO_HANDLER in self.error else self.error
        nested = self.nested_label.split(":")[2]
        if nested == WRONG_TYPE and self.written == 0:
            return SKIPS
        if nested == FILE_TYPE and self.written > 0:
            return WALKS
        return f"{self.written} labels written, the nested file has {self.nested_label}"


def parse_start(output: str) -> Start:
    """Return what the script of a start has printed. Raises LabError if it is something else."""
    try:
        first, written, nested_label = output.splitlines()
        answer = json.loads(first)
        return Start(answer["error"], answer["create_seconds"], int(written), nested_label)
    except (ValueError, KeyError) as error:
        raise LabError(f"the start of a container printed: {output}") from error


class CrioNode:
    """The node in the machine. Its CRI-O can be replaced and configured."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.run = machine.run

    def restart(self, release: str, drop_in: str) -> str:
        """Start CRI-O in place of the one that runs. Return its version.

        If it does not start, the answer is the last line of its log.
        """
        directory = self._machine.share / "crio.conf.d"
        directory.mkdir(exist_ok=True)
        files = {
            "crio.conf.d/00-node.conf": node_settings(
                CRIO / release / "pinns", DEFAULT_HANDLER, BUSYBOX_IMAGE
            ),
            "crio.conf.d/01-selinux.conf": _SELINUX,
            f"crio.conf.d/{Path(DROP_IN).name}": drop_in,
            "policy.json": _SIGNATURES,
            "pods.conflist": _NETWORK,
        }
        for name, text in files.items():
            (self._machine.share / name).write_text(text)
        return self.run(f"release={release}\n{_RESTART}").strip()

    def start(self, request: Json, volume: str, *, drop_caches: bool = False) -> Start:
        """Start a container with a volume, if one is named, and remove it."""
        written = json.dumps(request | {"drop_caches": drop_caches})
        (self._machine.share / "request.json").write_text(written)
        looks = "echo 0; echo none"
        if volume:
            found = f"find {VOLUMES / volume} -cnewer /run/mark | wc -l"
            looks = f"{found}; stat -c %C {_nested(volume)}"
        script = f"touch /run/mark; cri {_SOCKET} start </share/request.json\n{looks}\n"
        return parse_start(self.run(script))

    def case(self, request: Json) -> str:
        """Return what CRI-O does to a pod with a volume in which one nested label is wrong."""
        label = f"system_u:object_r:{FILE_TYPE}:{LEVEL}"
        self.run(f"chcon -R {label} {VOLUMES / _VOLUME}; chcon -t {WRONG_TYPE} {_nested(_VOLUME)}")
        return self.start(request, _VOLUME).outcome

    def describe(self) -> dict[str, str]:
        """Return the versions of what runs in the machine."""
        query = "dpkg-query -Wf '${Version}\\n' selinux-policy-default"
        output = self.run(f"uname -r; runc --version | head -n 1; {query}; getenforce")
        kernel, runc, policy, mode = output.splitlines()
        names = ("kernel", "runc", "selinux-policy-default", "SELinux")
        return dict(zip(names, (kernel, runc.split()[-1], policy, mode.lower()), strict=True))


def _nested(volume: str) -> Path:
    return VOLUMES / volume / "0" / str(FILES_PER_DIRECTORY // 2)


def volume_pod(volume: str, level: str) -> Json:
    """Return a pod as its author writes it, with a claim if `volume` names one."""
    container: Json = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"]}
    spec: Json = {"containers": [container]}
    if level:
        spec["securityContext"] = {"seLinuxOptions": {"level": level}}
    if volume:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
    labels = {POLICY_LABEL: "large-volumes"}
    metadata = {"name": "pod", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Requests:
    """The requests with which a kubelet starts pods, settled by podsettle."""

    def __init__(self, directory: Path) -> None:
        """`directory` is for the files of `podsettle preview`."""
        self._cluster = directory / "cluster.yaml"
        self._class: Json = yaml.safe_load(printed(*NODE_CONFIG, "-o", "runtimeclass"))
        self._name = self._class["metadata"]["name"]

    def named(self, name: str, volume: str, *, level: str = LEVEL) -> Json:
        """Return the request that starts a pod of one of the names above."""
        level = {ANOTHER_LEVEL: OTHER_LEVEL, NO_LEVEL: ""}.get(name, level)
        pod = volume_pod(volume, level)
        on_container = {_OLD: "true"} if name == ON_CONTAINER else {}
        if name == WITHOUT_CLASS:
            pod = self._settled(pod, {"skipSELinuxRelabel": {}})
        elif name in (CLASS_ALONE, ON_CONTAINER):
            pod = self._settled(pod, {"runtimeClass": {"name": self._name}})
        elif name != UNSETTLED:
            pod = self._settled(pod, {"skipSELinuxRelabel": {"runtimeClassName": self._name}})
            annotations = pod["metadata"]["annotations"]
            for key in _MISSPELT.get(name, ()):
                annotations[f"{key}s"] = annotations.pop(key)
            if name == CAPITAL:
                annotations |= {_OLD: "True", _NEW: "True"}
        return start_request(pod, {self._name: self._class["handler"]}, on_container)

    def _settled(self, pod: Json, remedies: Json) -> Json:
        """Return the pod as podsettle admits it under a policy with these remedies."""
        documents = (policy("large-volumes", remedies), self._class)
        self._cluster.write_text(yaml.safe_dump_all(documents))
        options = ("--manifests", self._cluster, "--output", "yaml", "-")
        done = podsettle("preview", *options, stdin=json.dumps(pod))
        if done.returncode != 0:
            raise LabError(f"podsettle preview: {done.stderr.strip()}")
        admitted: Json = yaml.safe_load(done.stdout)
        return admitted


def start_request(
    pod: Json, handlers: Mapping[str, str], container_annotations: Mapping[str, str]
) -> Json:
    """Return the input of `cri SOCKET start` that a kubelet makes of an admitted pod.

    `handlers` has the handler of each RuntimeClass. The kubelet gives the annotations of a pod to
    its sandbox only (`newPodAnnotations` and `newContainerAnnotations` in
    `pkg/kubelet/kuberuntime/labels.go`). It asks to relabel each volume that is not mounted with a
    label (`makeMounts` in `pkg/kubelet/kubelet_pods.go`).
    """
    metadata, spec = pod["metadata"], pod["spec"]
    (container,) = spec["containers"]
    uid = f"uid-{next(_uids)}"
    names = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": uid}
    security: Json = {"namespace_options": {"network": _POD, "pid": _CONTAINER, "ipc": _POD}}
    if options := spec.get("securityContext", {}).get("seLinuxOptions", {}):
        security["selinux_options"] = options
    paths = {
        volume["name"]: str(VOLUMES / volume["persistentVolumeClaim"]["claimName"])
        for volume in spec.get("volumes", ())
    }
    mounts = [
        {
            "container_path": mount["mountPath"],
            "host_path": paths[mount["name"]],
            "selinux_relabel": True,
        }
        for mount in container.get("volumeMounts", ())
    ]
    return {
        "handler": handlers[spec["runtimeClassName"]] if "runtimeClassName" in spec else "",
        "sandbox": {
            "metadata": names,
            "log_directory": f"/var/log/pods/{uid}",
            "labels": {f"io.kubernetes.pod.{key}": value for key, value in names.items()},
            "annotations": metadata.get("annotations", {}),
            "linux": {"security_context": security},
        },
        "container": {
            "metadata": {"name": container["name"]},
            "image": {"image": container["image"]},
            "command": container["command"],
            "mounts": mounts,
            "log_path": f"{container['name']}.log",
            "annotations": dict(container_annotations),
            "linux": {"security_context": security},
        },
    }


FIRST, LATER, NO_CACHES, OTHER = "first start", "later starts", "later, no caches", "another level"
Starts = Mapping[str, Sequence[Start]]
"""The starts of one kind of pods with one volume, by their columns."""


def _row(kind: str, files: int, starts: Starts) -> Row:
    row: Row = {"pods": kind, "files": values([files])}
    row |= {name: values([each.seconds for each in found], "s") for name, found in starts.items()}
    for when, found in (("first", starts[FIRST]), ("later", _later(starts))):
        row[f"labels written {when}"] = values([each.written for each in found])
    return row


def _later(starts: Starts) -> Sequence[Start]:
    return [*starts[LATER], *starts.get(NO_CACHES, ())]


def _measured(
    node: CrioNode, requests: Requests, short: bool
) -> Iterator[tuple[tuple[str, int], Starts]]:
    """Yield kinds of pods with the number of their files, and their starts."""
    later = range(2 if short else 5)

    def start(kind: str, volume: str, *, level: str = LEVEL, drop_caches: bool = False) -> Start:
        request = requests.named(kind, volume, level=level)
        found = node.start(request, volume, drop_caches=drop_caches)
        if found.error:
            raise LabError(f"a container did not start: {found.error}")
        return found

    def starts(kind: str, volume: str) -> dict[str, list[Start]]:
        return {FIRST: [start(kind, volume)], LATER: [start(kind, volume) for _ in later]}

    yield ("no volume", 0), starts(UNSETTLED, "")
    for files in (_SMALL, _LARGE) if short else SIZES:
        for prefix, kind in (("plain", UNSETTLED), ("settled", SETTLED)):
            volume = f"{prefix}-{files}"
            # The label of each file is read before, so that later reads come from the caches.
            node.run(f"find {VOLUMES / volume} -context '*' >/dev/null")
            found = starts(kind, volume)
            found[NO_CACHES] = [start(kind, volume, drop_caches=True) for _ in later]
            found[OTHER] = [start(kind, volume, level=OTHER_LEVEL)]
            yield (kind, files), found
    yield (NO_LEVEL, _LARGE), starts(NO_LEVEL, f"settled-{_LARGE}")


def unproven(starts: Mapping[tuple[str, int], Starts]) -> list[str]:
    """Return what the starts do not show of the defect and of its cure."""
    found = []
    for kind in (UNSETTLED, SETTLED):
        large = starts[kind, _LARGE]
        slow, fast = (
            median(each.seconds for each in starts[kind, files][LATER])
            for files in (_LARGE, _SMALL)
        )
        ratio = slow / fast
        if (ratio >= MAX_SETTLED_RATIO) if kind == SETTLED else (ratio <= MIN_UNSETTLED_RATIO):
            found.append(f"{kind}: the time grew {ratio:.2f} times")
        if (written := large[FIRST][0].written) < _LARGE:
            found.append(f"{kind}: the first start wrote {written} labels")
        if written := max(each.written for each in _later(large)):
            found.append(f"{kind}: a later start wrote {written} labels: expected none")
    return found


@click.command("selinux")
@click.option(
    "--machine",
    "image",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="What `python -m tests.support.vm.image` prints.",
)
@click.option("--short", is_flag=True, help="One release of CRI-O, and fewer starts.")
@experiment
def selinux(image: Path, short: bool) -> Outcome:
    """Start containers with large volumes, unsettled and settled."""
    cases: dict[tuple[str, str], Row] = {}
    unlike: list[str] = []
    releases = (AFFECTED,) if short else RELEASES
    with tempfile.TemporaryDirectory() as directory, selinux_machine(image) as machine:
        node, requests = CrioNode(machine), Requests(Path(directory))
        answer = node.restart(AFFECTED, selinux_drop_in(DEFAULT_HANDLER, "--oldest", AFFECTED))
        if not answer.startswith("cri-o "):
            raise LabError(f"CRI-O {AFFECTED} does not start: {answer}")
        starts = dict(_measured(node, requests, short))
        for release in releases:
            version = release.removeprefix("v")
            for configuration, pods in expected_outcomes(release).items():
                runs = node.restart(release, _drop_in(configuration)) == f"cri-o {version}"
                for pod, expected in pods.items():
                    outcome = node.case(requests.named(pod, _VOLUME)) if runs else NO_START
                    row = cases.setdefault(
                        (configuration, pod), {"configuration": configuration, "pod": pod}
                    )
                    row[f"CRI-O {version}"] = outcome
                    if outcome != expected:
                        unlike.append(f"CRI-O {version}, {configuration}, {pod}: {outcome}")
        facts = node.describe()
    rows = [_row(*pods, found) for pods, found in starts.items()]
    shown = Table("CreateContainer", rows), Table("Cases", list(cases.values()))
    return Outcome(shown, facts, [*unproven(starts), *unlike])
