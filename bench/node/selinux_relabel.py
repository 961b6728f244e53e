#!/usr/bin/env python3
"""Start times of containers with a large volume, with and without SELinux relabelling.

It stands alone: it needs Python 3.11 and `kubectl`, whose kubeconfig may create pods and a volume
claim in one namespace. It is for a cluster whose nodes have SELinux and CRI-O, configured with
`podsettle node-config crio --selinux`. podsettle does not have to be installed.

    python3 bench/node/selinux_relabel.py --namespace test --files 200000

It fills a volume with files and starts pods in turn: without the volume, with it, and with it and
the annotations of the remedy `skipSELinuxRelabel`. It measures the time between the last output of
a container and the first output of the next one, in which the runtime visits each file of the
volume. The first start writes the label of each file. Later starts with the same level read the
labels and write none, so the difference between the rows is mostly the time of this walk.

Without SELinux nothing is relabelled. The script then says so above the table, and its exit code
is 1: such figures show nothing about the remedy.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]

ANNOTATIONS = (
    "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
    "try-skip-volume-selinux-label.crio.io",
)
# A namespace of OpenShift gives its pods a level. Elsewhere the pods get this one: without a stable
# level, the runtime relabels in any case.
OPENSHIFT_LEVEL = "openshift.io/sa.scc.mcs"
LEVEL = "s0:c123,c456"

NO_VOLUME, RELABELLED, SKIPPED = "no volume", "volume", "volume, annotated"
COLUMN = "start of the container"
_FILES_PER_DIRECTORY = 1000
_POLL_SECONDS = 0.5

# A context of SELinux, and not a profile of AppArmor, whose file has the same name.
_CONTEXT = re.compile(r"[a-z0-9_]+:[a-z0-9_]+:[a-z0-9_]+:s\d\S*")


class MeasurementError(Exception):
    """The measurement is not possible. The message contains the reason."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    namespace: str
    claim: str
    storage_class: str
    node: str
    image: str
    runtime_class: str
    files: int
    rounds: int
    timeout_seconds: float
    out: Path


@dataclass(frozen=True)
class Start:
    """A started pod: the time of its second container, and what this container saw."""

    seconds: float
    node: str
    context: str


def parse_arguments(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Measure how long CRI-O relabels a volume at the start of a container.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--namespace", default="default", help="an existing namespace")
    parser.add_argument("--claim", default="", help="an existing claim; default: a new one")
    parser.add_argument("--storage-class", default="", help="of the new claim")
    parser.add_argument("--node", default="", help="the node to measure; default: any")
    parser.add_argument("--image", default="docker.io/library/busybox", help="an image with sh")
    parser.add_argument(
        "--runtime-class",
        default="selinux-fix-runtime-class",
        help='RuntimeClass of the annotated pods; "" with --mode workload',
    )
    parser.add_argument("--files", type=int, default=100_000, help="files in the volume")
    parser.add_argument("--rounds", type=int, default=5, help="pods of each kind")
    parser.add_argument("--timeout-seconds", type=float, default=3600.0, help="limit for each pod")
    parser.add_argument(
        "--out", type=Path, default=Path("selinux-relabel.json"), help="file for the results"
    )
    options = Options(**vars(parser.parse_args(arguments)))
    if min(options.files, options.rounds) < 1:
        parser.error("--files and --rounds: the number must be 1 or more")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write the results."""
    options = parse_arguments(arguments)
    try:
        results = measure(options)
    except MeasurementError as error:
        print(f"selinux_relabel: {error}", file=sys.stderr)
        return 2
    print(as_text(results))
    options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {options.out}")
    return 0 if results["selinux"] else 1


def measure(options: Options) -> Json:
    """Start the pods, and return the results."""
    pods = Pods(options)
    starts: dict[str, list[Start]] = {kind: [] for kind in (NO_VOLUME, RELABELLED, SKIPPED)}
    with pods.claim() as claim:
        node = pods.fill(claim)
        order = list(starts)
        for _ in range(options.rounds):
            for kind in order:
                starts[kind].append(pods.start(kind, claim, node))
            # The speed of a shared machine changes slowly, so the next round has the reverse order.
            order.reverse()
    return as_results(starts, pods.describe(node), options)


def as_results(starts: dict[str, list[Start]], environment: Json, options: Options) -> Json:
    """Return the JSON object of the results file, in the form of the project's benchmarks."""
    contexts = {start.context for each in starts.values() for start in each}
    rows = {
        kind: {COLUMN: _figure([start.seconds for start in each], "s")}
        for kind, each in starts.items()
    }
    for kind in (RELABELLED, SKIPPED):
        pairs = zip(starts[kind], starts[NO_VOLUME], strict=True)
        differences = [start.seconds - base.seconds for start, base in pairs]
        rows[kind][f"more than {NO_VOLUME}"] = _figure(differences, "s")
    notes = [f"{len(starts[SKIPPED])} pods in each row. The volume has {options.files:,} files."]
    if not str(environment["runtime"]).startswith("cri-o://"):
        notes.append("This runtime is not CRI-O. It ignores the annotations.")
    return {
        "environment": environment | {"context": " and ".join(sorted(contexts)) or "none"},
        "selinux": any(_CONTEXT.fullmatch(context) for context in contexts),
        "parts": {
            "relabel": {
                "title": "Start of a container, with and without relabelling its volume",
                "rows": rows,
                "notes": notes,
            }
        },
    }


def as_text(results: Json) -> str:
    """Return the table and its notes for a terminal."""
    environment, part = results["environment"], results["parts"]["relabel"]
    lines = [", ".join(f"{name} {value}" for name, value in environment.items()), ""]
    if not results["selinux"]:
        lines += [
            "SELinux is not enabled on this node: the runtime relabels nothing. These figures show "
            "only that",
            "the script runs. They show nothing about the remedy. Not seen here: that every file "
            "is visited",
            "at each start, how long that takes, and that the annotations prevent it.",
            "",
        ]
    columns = list(dict.fromkeys(column for row in part["rows"].values() for column in row))
    table = [["", *columns]]
    for name, figures in part["rows"].items():
        cells = [_cell(figures[column]) if column in figures else "" for column in columns]
        table.append([name, *cells])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines.append(part["title"])
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  - {note}" for note in part["notes"]]
    return "\n".join(lines)


def _figure(values: Sequence[float], unit: str) -> Json:
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "unit": unit,
        "rounds": list(values),
    }


def _cell(figure: Json) -> str:
    span = f"{figure['low']:.2f}–{figure['high']:.2f}"
    return f"{figure['median']:.2f} {figure['unit']} ({span})"


class Pods:
    """The pods of the measurement."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._prefix = f"selinux-relabel-{secrets.token_hex(3)}"
        self._number = 0
        namespace = _read(_kubectl("get", "namespace", options.namespace, "-o", "json"))
        has_level = OPENSHIFT_LEVEL in namespace["metadata"].get("annotations", {})
        self._level = None if has_level else LEVEL

    @contextmanager
    def claim(self) -> Iterator[str]:
        """Yield the name of the volume claim. A new one is deleted at the end."""
        if self._options.claim:
            yield self._options.claim
            return
        storage_class = self._options.storage_class
        self._create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self._prefix},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    **({"storageClassName": storage_class} if storage_class else {}),
                },
            }
        )
        try:
            yield self._prefix
        finally:
            self._kubectl("delete", "pvc", self._prefix, "--wait=false")

    def fill(self, claim: str) -> str:
        """Write the files to the volume. Return the node, to which all other pods are bound."""
        script = (
            f"f=0; while [ $f -lt {self._options.files} ]; do "
            f"d=/volume/$((f/{_FILES_PER_DIRECTORY})); [ -d $d ] || mkdir $d; "
            ": >$d/$f; f=$((f+1)); done"
        )
        pod = self._pod(script, claim, node=self._options.node)
        with self._running(pod) as done:
            return str(done["spec"]["nodeName"])

    def start(self, kind: str, claim: str, node: str) -> Start:
        """Start a pod and return how long its second container took to start."""
        script = "echo began; tr -d '\\0' </proc/self/attr/current || true"
        pod = self._pod(script, "" if kind == NO_VOLUME else claim, node=node)
        first = {"name": "first", "image": self._options.image, "command": ["sh", "-c", "echo end"]}
        pod["spec"]["initContainers"] = [first]
        if kind == SKIPPED:
            pod["metadata"]["annotations"] = dict.fromkeys(ANNOTATIONS, "true")
            if self._options.runtime_class:
                pod["spec"]["runtimeClassName"] = self._options.runtime_class
        with self._running(pod) as done:
            name = done["metadata"]["name"]
            ended, _ = parse_log(self._log(name, "first"))[0]
            (began, _), *rest = parse_log(self._log(name, "second"))
            context = rest[0][1].strip() if rest else ""
            return Start((began - ended).total_seconds(), done["spec"]["nodeName"], context)

    def describe(self, name: str) -> Json:
        """Return the versions of the node."""
        node = _read(_kubectl("get", "node", name, "-o", "json"))
        info = node["status"]["nodeInfo"]
        return {
            "runtime": info["containerRuntimeVersion"],
            "kubelet": info["kubeletVersion"],
            "kernel": info["kernelVersion"],
            "system": info["osImage"],
        }

    def _pod(self, script: str, claim: str, *, node: str) -> Json:
        self._number += 1
        container: Json = {
            "name": "second",
            "image": self._options.image,
            "command": ["sh", "-ec", script],
        }
        # A recursive change of the group would be measured as well.
        security: Json = {"fsGroupChangePolicy": "OnRootMismatch"}
        if self._level:
            security["seLinuxOptions"] = {"level": self._level}
        spec: Json = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": security,
            "containers": [container],
        }
        if claim:
            container["volumeMounts"] = [{"name": "volume", "mountPath": "/volume"}]
            spec["volumes"] = [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}]
        if node:
            term = {"key": "metadata.name", "operator": "In", "values": [node]}
            terms = {"nodeSelectorTerms": [{"matchFields": [term]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            spec["affinity"] = {"nodeAffinity": required}
        metadata = {"name": f"{self._prefix}-{self._number}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @contextmanager
    def _running(self, pod: Json) -> Iterator[Json]:
        """Create a pod, wait for its end, and delete it after the block."""
        name = pod["metadata"]["name"]
        self._create(pod)
        try:
            deadline = time.monotonic() + self._options.timeout_seconds
            while True:
                found = _read(self._kubectl("get", "pod", name, "-o", "json"))
                phase = found["status"].get("phase")
                if phase == "Succeeded":
                    break
                if phase == "Failed" or time.monotonic() > deadline:
                    raise MeasurementError(f"pod {name}: {phase}: {json.dumps(found['status'])}")
                time.sleep(_POLL_SECONDS)
            yield found
        finally:
            self._kubectl("delete", "pod", name, "--wait")

    def _log(self, pod: str, container: str) -> str:
        return self._kubectl("logs", pod, "-c", container, "--timestamps")

    def _create(self, manifest: Json) -> None:
        self._kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return _kubectl("--namespace", self._options.namespace, *arguments, stdin=stdin)


def parse_log(text: str) -> list[tuple[datetime, str]]:
    """Return the lines of `kubectl logs --timestamps` with their times."""
    lines = (line.partition(" ") for line in text.splitlines())
    return [(datetime.fromisoformat(moment), rest) for moment, _, rest in lines]


def _kubectl(*arguments: str, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            ["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise MeasurementError("kubectl is not installed") from None
    if done.returncode != 0:
        raise MeasurementError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _read(text: str) -> Json:
    found: Json = json.loads(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
