"""The command line of the soak: `python -m tests.soak --minutes 60`."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.soak.churn import POLICY, Churn
from tests.soak.samples import Sample, growth, memory_slope, read_process
from tests.support.e2e_pods import is_called
from tests.support.every_remedy import EVERY_REMEDY, create_runtime_class, every_remedy_pod
from tests.support.helm_release import POLICIES, ROUTING, Installation, installed
from tests.support.helm_release import policy as policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.pod_load import Load, creating_pods
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that

NAMESPACE = "soak"
PER_SECOND = 50
UNLIKE_PODS = 200
"""Pods of as many templates, so that the decision cache has misses."""
SHORT_MINUTES = 10
"""A shorter run samples more often."""
RESTARTS = 6
WARM_MINUTES = 10
"""Caches fill and pools of memory grow meanwhile. Growth is judged afterwards, over as long a time
at least."""
SETTINGS = "--set=webhook.timeoutSeconds=2"
"""The chart's own timeout."""


@click.command()
@click.option("--minutes", type=click.FloatRange(min=1), default=60.0, show_default=True)
def main(minutes: float) -> None:
    """Create pods at a steady rate while everything changes, and fail if anything grows."""
    with tempfile.TemporaryDirectory() as scratch, _released(Path(scratch), minutes) as release:
        churn = Churn(release, release.replicas[0])
        pods = _settled_pods(release.cluster)
        click.echo(f"{len(pods)} pods, {PER_SECOND} creations a second, {minutes:g} minutes")
        with (
            creating_pods(release.cluster, *pods, per_second=PER_SECOND, threads=40) as load,
            churn.running(),
        ):
            samples, restarts = _watch(release, load, minutes)
        failed_calls = _failed_calls(release.cluster)
    judged = [each for each in samples if each.minute >= WARM_MINUTES]
    slope = memory_slope(judged) if minutes >= 2 * WARM_MINUTES else None
    done = {**churn.done, "restart of a replica": restarts}
    click.echo(str(load))
    click.echo(", ".join(f"{name}: {number}" for name, number in done.items()))
    if slope is None:
        click.echo(f"growth is not judged in less than {2 * WARM_MINUTES} minutes")
    else:
        click.echo(f"memory grows by {slope:.2f} MiB in ten minutes")
    found = [
        *(growth(judged) if slope is not None else ()),
        *(f"not created: {text}" for text in load.failed),
        *(f"unsettled: {text}" for text in load.unsettled),
        *churn.failed,
    ]
    if found:
        raise click.ClickException("\n".join([*found, *failed_calls]))


def _failed_calls(cluster: KubeCluster) -> list[str]:
    """Return the lines of the API server's log about webhook calls that failed, which say why."""
    log = (cluster.directory / "kube-apiserver.log").read_text(errors="replace")
    return [line for line in log.splitlines() if "failed calling webhook" in line]


def _watch(release: Installation, load: Load, minutes: float) -> tuple[list[Sample], int]:
    """Take samples of the first replica, and replace the second one from time to time.

    Return the samples and the number of restarts.
    """
    interval = 60.0 if minutes >= SHORT_MINUTES else 6.0
    samples: list[Sample] = []
    restarts = 0
    start = time.monotonic()
    while (time.monotonic() - start) / 60 < minutes:
        time.sleep(interval)
        samples.append(_sample(release, load, (time.monotonic() - start) / 60))
        click.echo(_line(samples[-1]))
        if samples[-1].minute >= (restarts + 1) * minutes / RESTARTS:
            release.start_ready(*_lives(minutes))
            release.retire(release.replicas[1])
            restarts += 1
    return samples, restarts


@contextmanager
def _released(directory: Path, minutes: float) -> Iterator[Installation]:
    """Install the chart with its own settings, and start two replicas."""
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, directory) as release:
        release.install(SETTINGS)
        create_runtime_class(cluster)
        policy = policy_document(POLICY, namespaceSelector={}, remedies=EVERY_REMEDY)
        cluster.create(POLICIES, policy)
        cluster.namespace(NAMESPACE)
        for _ in range(2):
            release.start_ready(*_lives(minutes))
        await_that(lambda: is_called(cluster, NAMESPACE), "the API server calls podsettle")
        yield release


def _lives(minutes: float) -> tuple[str, ...]:
    """Return lifetimes with which a run sees about fifteen leaves and three CAs."""
    leaf = max(round(minutes * 60 / 10), 12)
    return f"--leaf-life={leaf}s", f"--ca-life={4 * leaf}s"


def _settled_pods(cluster: KubeCluster) -> list[Json]:
    """Return the sample pods that the policy settles, mixed with pods that are all unlike."""
    samples = []
    for path in PODS:
        pod = load_pod(path)
        pod["metadata"]["namespace"] = NAMESPACE
        pod["spec"].pop("serviceAccountName", None)
        answer = cluster.create_pod(pod, dry_run=True)
        annotations = answer.body.get("metadata", {}).get("annotations", {})
        if answer.status == 201 and "podsettle.dev/applied" in annotations:
            samples.append(pod)
    unlike = []
    for number in range(UNLIKE_PODS):
        pod = every_remedy_pod(f"unlike-{number}", NAMESPACE)
        pod["spec"]["initContainers"][0]["command"] = [f"/prepare-{number}"]
        unlike.append(pod)
    copies = [copy.deepcopy(samples[number % len(samples)]) for number in range(UNLIKE_PODS)]
    return [pod for pair in zip(copies, unlike, strict=True) for pod in pair]


def _sample(release: Installation, load: Load, minute: float) -> Sample:
    process = read_process(release.replicas[0], release.cluster.token)
    durations = [1000 * each.seconds for each in load.take_creations() if not each.failed]
    cuts = statistics.quantiles(durations, n=100)
    return Sample(minute, *process, len(durations), cuts[49], cuts[98])


def _line(sample: Sample) -> str:
    return (
        f"{sample.minute:6.1f} min  {sample.memory_mib:6.1f} MiB  {sample.descriptors:4} "
        f"descriptors  {sample.threads:3} threads  {sample.tasks:3} tasks  {sample.created:5} "
        f"created  p50 {sample.p50_ms:6.1f} ms  p99 {sample.p99_ms:6.1f} ms"
    )


if __name__ == "__main__":
    main()
