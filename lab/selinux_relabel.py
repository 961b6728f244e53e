#!/usr/bin/env python3
"""Start times of containers with a large volume, with and without SELinux relabelling.

It stands alone: it needs Python 3.11 and `kubectl`, whose kubeconfig may create pods and a volume
claim in one namespace. It is for a cluster whose nodes have SELinux and CRI-O, configured with
`podsettle node-config crio --selinux`. podsettle does not have to be installed.

    python3 lab/selinux_relabel.py --namespace test --files 200000

It fills a volume with files and starts pods in turn: without the volume, with it, and with it and
the annotations of the remedy `skipSELinuxRelabel`. It measures the time between the last output of
a container and the first output of the next one, in which the runtime visits each file of the
volume. Later starts with the same level write no labels, so the difference between the rows is
mostly the time of this walk. Without SELinux nothing is relabelled, and the exit code is 1.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
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
NO_PROOF = "These figures show only that the script runs. They show nothing about the remedy."
# For each pod.
_TIMEOUT_SECONDS = 3600.0
# A context of SELinux, and not a profile of AppArmor, whose file has the same name.
_CONTEXT = re.compile(r"[a-z0-9_]+:[a-z0-9_]+:[a-z0-9_]+:s\d\S*")
_FILL = (
    "f=0; while [ $f -lt {files} ]; do d=/volume/$((f/1000)); [ -d $d ] || mkdir $d; :>$d/$f; "
    "f=$((f+1)); done"
)
_START = "echo began; tr -d '\\0' </proc/self/attr/current || true"


class MeasurementError(Exception):
    """The measurement is not possible. The message contains the reason."""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Measure how long CRI-O relabels a volume at the start of a container.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--namespace", default="default", help="an existing namespace")
    add("--claim", default="", help="an existing claim; default: a new one")
    add("--node", default="", help="the node to measure; default: any")
    add("--image", default="docker.io/library/busybox", help="an image with sh")
    classes = 'RuntimeClass of the annotated pods; "" with --mode workload'
    add("--runtime-class", default="selinux-fix-runtime-class", help=classes)
    add("--files", type=int, default=100_000, help="files in the volume")
    add("--rounds", type=int, default=5, help="pods of each kind")
    options = parser.parse_args(arguments)
    if min(options.files, options.rounds) < 1:
        parser.error("--files and --rounds: the number must be 1 or more")
    return options


def main() -> int:
    """Measure, and print the table."""
    options = parse_arguments()
    try:
        results = measure(options)
    except MeasurementError as error:
        print(f"selinux_relabel: {error}", file=sys.stderr)
        return 2
    print(as_text(results))
    return 0 if results["selinux"] else 1


def has_selinux(contexts: Iterable[str]) -> bool:
    """Whether a process with one of these contexts runs under SELinux."""
    return any(_CONTEXT.fullmatch(context) for context in contexts)


def as_text(results: Mapping[str, Any]) -> str:
    """Return the table for a terminal, with the median and the range of each kind of pods."""
    lines = [", ".join(f"{name} {value}" for name, value in results["environment"].items()), ""]
    if not results["selinux"]:
        lines += [
            "SELinux is not enabled on this node: the runtime relabels nothing.",
            NO_PROOF,
            "",
        ]
    if not results["environment"]["containerRuntimeVersion"].startswith("cri-o://"):
        lines += ["This runtime is not CRI-O. It ignores the annotations.", ""]
    base = results["seconds"][NO_VOLUME]
    for kind, seconds in results["seconds"].items():
        more = [one - other for one, other in zip(seconds, base, strict=True)]
        beside = "" if kind == NO_VOLUME else f"  more than {NO_VOLUME}: {_figure(more)}"
        lines.append(f"  {kind:<18} start of the container: {_figure(seconds)}{beside}")
    return "\n".join(lines)


def _figure(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})"


def parse_log(text: str) -> list[tuple[datetime, str]]:
    """Return the lines of `kubectl logs --timestamps` with their times."""
    lines = (line.partition(" ") for line in text.splitlines())
    return [(datetime.fromisoformat(moment), rest) for moment, _, rest in lines]


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Return what kubectl prints."""
    try:
        done = subprocess.run(
            ["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise MeasurementError("kubectl is not installed") from None
    if done.returncode != 0:
        raise MeasurementError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def measure(options: argparse.Namespace) -> Json:
    """Start the pods, and return the results."""
    namespace = json.loads(kubectl("get", "namespace", options.namespace, "-o", "json"))
    has_level = OPENSHIFT_LEVEL in namespace["metadata"].get("annotations", {})
    options.level = "" if has_level else LEVEL
    seconds: dict[str, list[float]] = {kind: [] for kind in (NO_VOLUME, RELABELLED, SKIPPED)}
    contexts = set()
    with _claim(options) as claim:
        node = _run(options, _FILL.format(files=options.files), claim, options.node)[0]
        order = list(seconds)
        for _ in range(options.rounds):
            for kind in order:
                volume = "" if kind == NO_VOLUME else claim
                logs = _run(options, _START, volume, node, skips=kind == SKIPPED)[1:]
                ((ended, _),), ((began, _), *rest) = map(parse_log, logs)
                seconds[kind].append((began - ended).total_seconds())
                contexts |= {context.strip() for _, context in rest}
            # The speed of a shared machine changes slowly: the next round is in reverse order.
            order.reverse()
    found = json.loads(kubectl("get", "node", node, "-o", "json"))["status"]["nodeInfo"]
    names = ("containerRuntimeVersion", "kubeletVersion", "kernelVersion", "osImage")
    environment = {name: found[name] for name in names}
    environment |= {"files": options.files, "context": " ".join(sorted(contexts)) or "none"}
    return {"environment": environment, "selinux": has_selinux(contexts), "seconds": seconds}


@contextmanager
def _claim(options: argparse.Namespace) -> Iterator[str]:
    """Yield the name of the volume claim. A new one is deleted at the end."""
    if options.claim:
        yield options.claim
        return
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    with _object(options, "PersistentVolumeClaim", {"spec": spec}) as name:
        yield name


@contextmanager
def _object(options: argparse.Namespace, kind: str, body: Json) -> Iterator[str]:
    """Create an object, yield its name, and delete it after the block."""
    name = f"selinux-relabel-{secrets.token_hex(4)}"
    metadata = {**body.get("metadata", {}), "name": name, "namespace": options.namespace}
    manifest = {"apiVersion": "v1", "kind": kind, **body, "metadata": metadata}
    kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield name
    finally:
        wait = "true" if kind == "Pod" else "false"
        kubectl("-n", options.namespace, "delete", kind.lower(), name, f"--wait={wait}")


def _run(
    options: argparse.Namespace, script: str, claim: str, node: str, *, skips: bool = False
) -> tuple[str, str, str]:
    """Run a pod with two containers to its end. Return its node and both logs."""
    with _object(options, "Pod", _pod(options, script, claim, node, skips=skips)) as name:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        phase = ""
        while phase != "Succeeded":
            query = ("get", "pod", name, "-o", "json")
            found = json.loads(kubectl("-n", options.namespace, *query))
            phase = found["status"].get("phase")
            if phase == "Failed" or time.monotonic() > deadline:
                raise MeasurementError(f"pod {name}: {phase}: {json.dumps(found['status'])}")
            time.sleep(0.5)
        logs = ("-n", options.namespace, "logs", name, "--timestamps", "-c")
        return found["spec"]["nodeName"], kubectl(*logs, "first"), kubectl(*logs, "second")


def _pod(options: argparse.Namespace, script: str, claim: str, node: str, *, skips: bool) -> Json:
    first = {"name": "first", "image": options.image, "command": ["sh", "-c", "echo end"]}
    second: Json = {"name": "second", "image": options.image, "command": ["sh", "-ec", script]}
    # A recursive change of the group would be measured as well.
    security: Json = {"fsGroupChangePolicy": "OnRootMismatch"}
    if options.level:
        security["seLinuxOptions"] = {"level": options.level}
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": security,
        "initContainers": [first],
        "containers": [second],
    }
    if claim:
        second["volumeMounts"] = [{"name": "volume", "mountPath": "/volume"}]
        spec["volumes"] = [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}]
    if node:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"nodeSelectorTerms": [term]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        spec["affinity"] = {"nodeAffinity": affinity}
    if skips and options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    annotations = dict.fromkeys(ANNOTATIONS, "true") if skips else {}
    return {"metadata": {"annotations": annotations}, "spec": spec}


if __name__ == "__main__":
    sys.exit(main())
