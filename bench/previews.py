"""The latency of reviews while podsettle makes previews, compared with no previews."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import cluster_manifests, reviews
from bench.errors import BenchError
from bench.interleave import interleave
from bench.measurement import Measurement, Rows, to_measurements
from bench.open_loop import UNITS, run_open_loop
from bench.process import running_process
from bench.report_table import ReportTable
from bench.run import CONNECTIONS, Run
from bench.servers import THIS_CODE, Code, Server, check_answers, wait_until_ready
from bench.stall_monitor import longest_stall
from bench.throughput import is_patched
from tests.support.process import free_port

NAME = "previews"
IDLE = "no previews"
STALL = "longest event loop stall"
CPU_TIME = "most CPU time between callbacks"
EXCESS = "p99 above twice that without previews"
# Reviews per second. A core can answer many times as many, so no review waits for another.
_RATE = 200.0
_POLICIES, _NAMESPACES = 1_000, 10_000
# Previews are sent from the core of the load generator, at a lower priority than reviews.
_NICENESS = 10


def bodies() -> dict[str, bytes]:
    """Return ordinary and hostile texts by name. None is above the limits of /preview."""
    pod = reviews.tekton()["request"]["object"]
    limit = 256 * 1024 - 1024
    nested = "a: " + "".join(f"&a{n} [" for n in range(190)) + "1," * 120_000 + "]" * 190
    containers = [{"name": f"c{n}", "image": "a", "env": [{"name": "x"}] * 20} for n in range(300)]
    wide = {"kind": "Pod", "metadata": pod["metadata"], "spec": {"initContainers": containers}}
    return {
        "Tekton pods": _pod_list(pod, limit),
        "190 nested anchors": nested.encode(),
        "120,000 values": b"[" + b"1," * 120_000 + b"1]",
        "300 init containers": json.dumps(wide).encode(),
        "4,900 objects without a pod": b"kind: Service\n---\n" * 4_900 + json.dumps(pod).encode(),
    }


def _pod_list(pod: reviews.Json, limit: int) -> bytes:
    """Return a List with as many copies of a pod as fit into `limit` bytes, at most 50."""
    count = min(limit // (len(json.dumps(pod)) + 2), 50)
    return json.dumps({"kind": "List", "items": [pod] * count}).encode()


def measure(run: Run) -> ReportTable:
    """Measure the latency of reviews and the event loop's stalls, for previews of each text."""
    part = ReportTable(NAME, "Reviews during previews")
    review_bodies = reviews.variants(reviews.tekton())
    files = run.write_reviews("beside-previews", review_bodies)
    stalls = run.directory / "stalls"
    manifests = cluster_manifests.write_manifests(
        run.directory / "previewed", _POLICIES, _NAMESPACES
    )
    with monitored_server(run, manifests, stalls) as server:
        check_answers(server, review_bodies[:1], is_patched)
        texts: dict[str, bytes | None] = {IDLE: None, **bodies()}
        statuses: dict[str, list[int]] = {}

        def load(name: str) -> dict[str, float]:
            run.log_progress(f"previews: {name}")
            figures, answered = load_during_previews(run, server, files, stalls, texts[name])
            statuses.setdefault(name, []).extend(answered)
            return figures

        measurements = {name: partial(load, name) for name in texts}
        rounds = interleave(measurements, run.profile.rounds)
    units = {**UNITS, STALL: "ms", CPU_TIME: "ms", "previews answered": ""}
    part.rows = {name: to_measurements(figures, units) for name, figures in rounds.items()}
    _add_comparison(part.rows)
    part.notes += [
        f"The load is {_RATE:g} reviews per second. The cluster has {_POLICIES:,} policies and "
        f"{_NAMESPACES:,} namespaces. The preview worker runs on the server's core.",
        "A stall is a delay of a callback on the event loop. It includes the time in which other "
        "processes use the core. The CPU time between callbacks is that of the event loop's thread "
        "only, and includes reviews.",
        "One client sends the same text repeatedly, each time after the last answer.",
        *(f"{name}: {_count_statuses(answers)}." for name, answers in statuses.items() if answers),
    ]
    return part


def load_during_previews(
    run: Run, server: Server, files: list[Path], stalls: Path, text: bytes | None
) -> tuple[dict[str, float], list[int]]:
    """Send reviews while the server makes previews of a text.

    Return the figures, and the statuses of the answers to the previews.
    """
    with _send_previews(server, text, run.cores.load) as answered:
        start = time.monotonic()
        figures = run_open_loop(
            server,
            files,
            rate=_RATE,
            connections=CONNECTIONS,
            seconds=run.profile.load_seconds * 2,
            core=run.cores.load,
        )
        stall = longest_stall(stalls, start, time.monotonic())
    figures |= {STALL: stall.delay * 1e3, CPU_TIME: stall.cpu * 1e3}
    figures["previews answered"] = float(len(answered))
    return figures, answered


def _add_comparison(rows: Rows) -> None:
    """Add columns that compare the p99 of each row with the p99 without previews."""
    idle = rows[IDLE]["p99"]
    for name, figures in rows.items():
        if name != IDLE:
            twice = Measurement(tuple(2 * value for value in idle.values), idle.unit)
            figures["p99, ratio to no previews"] = figures["p99"].ratio_to(idle)
            figures[EXCESS] = figures["p99"].minus(twice)


def worst(part: ReportTable, column: str) -> Measurement:
    """Return the highest value of a column over all texts, in each round."""
    measures = [figures[column] for name, figures in part.rows.items() if name != IDLE]
    values = zip(*(measure.values for measure in measures), strict=True)
    return Measurement(tuple(map(max, values)), measures[0].unit)


def _count_statuses(answers: list[int]) -> str:
    counts = {status: answers.count(status) for status in sorted(set(answers))}
    return ", ".join(f"{count} answered with {status}" for status, count in counts.items())


@contextmanager
def monitored_server(
    run: Run, manifests: Path, stalls: Path, code: Code = THIS_CODE
) -> Iterator[Server]:
    """Run podsettle with the stall monitor of the same commit while the block runs."""
    port, web_port = free_port(), free_port()
    url = f"https://127.0.0.1:{port}"
    web_url = f"https://127.0.0.1:{web_port}" if code.has_web_port else ""
    monitor = [*code.python_command, "-m", "bench.stall_monitor"]
    command: list[str | Path] = [*monitor, run.certs, str(port), manifests, stalls]
    command.append(str(web_port))  # An older commit ignores it.
    log = run.directory / "previewed.log"
    core, env = run.cores.server, code.environment
    with running_process(command, log, core=core, env=env) as process:
        wait_until_ready(process, f"{url}/readyz", run.certs / "ca.crt")
        yield Server("podsettle", f"{url}/mutate", run.certs / "ca.crt", process, web_url)


@contextmanager
def _send_previews(server: Server, text: bytes | None, core: int) -> Iterator[list[int]]:
    """Send a text repeatedly while the block runs. Yield the list of the answers' statuses."""
    answered: list[int] = []
    finished = threading.Event()

    def send() -> None:
        # On Linux, both settings affect only this thread.
        os.sched_setaffinity(0, {core})
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while not finished.is_set():
            status, _ = server.preview(text or b"")
            if not finished.is_set():
                answered.append(status)

    thread = threading.Thread(target=send)
    if text is not None:
        thread.start()
    try:
        yield answered
    finally:
        finished.set()
        if text is not None:
            thread.join(60)
            if thread.is_alive():
                raise BenchError("a preview was not answered within a minute")
