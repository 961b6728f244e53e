"""What previews cost reviews: a steady rate of reviews, with previews beside it and without."""

from __future__ import annotations

import json
import os
import sys
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
from bench.servers import Server, check_answers, wait_until_ready
from bench.stall_monitor import longest_stall
from bench.throughput import is_patched
from tests.support.process import free_port

NAME = "previews"
IDLE = "reviews alone"
STALL = "longest stall of the loop"
WORK = "most CPU at a stretch"
BEYOND = "p99 beyond twice the idle one"
_RATE = 200.0
"""Reviews a second: some hundredths of what a core can do, so that none waits for another."""
_POLICIES, _NAMESPACES = 1_000, 10_000
_NICENESS = 10
"""Of what sends previews, on the core of what sends reviews."""


def bodies() -> dict[str, bytes]:
    """Ordinary and hostile texts, each up to the 4 MiB that are read."""
    pod = reviews.tekton()["request"]["object"]
    tekton = json.dumps({"kind": "List", "items": [pod] * 490}).encode()
    limit = 4 * 1024 * 1024 - 1024
    nested = "a: " + "".join(f"&a{n} [" for n in range(190)) + "1," * 200_000 + "]" * 190
    containers = [{"name": f"c{n}", "image": "a", "env": [{"name": "x"}] * 20} for n in range(990)]
    wide = {"kind": "Pod", "metadata": pod["metadata"], "spec": {"initContainers": containers}}
    return {
        "490 pods of Tekton": tekton[:limit] if len(tekton) <= limit else _list(pod, limit),
        "190 nested anchors": nested.encode(),
        "500,000 values": b"[" + b"1," * 480_000 + b"1]",
        "990 init containers": json.dumps(wide).encode(),
        "4,900 objects without a pod": b"kind: Service\n---\n" * 4_900 + json.dumps(pod).encode(),
    }


def _list(pod: reviews.Json, limit: int) -> bytes:
    count = limit // (len(json.dumps(pod)) + 2)
    return json.dumps({"kind": "List", "items": [pod] * count}).encode()


def measure(run: Run) -> ReportTable:
    """p50, p99 and the longest stall of the loop while each kind of text is previewed."""
    part = ReportTable(NAME, "Reviews while previews are made")
    sent = reviews.variants(reviews.tekton())
    files = run.write_reviews("beside-previews", sent)
    stalls = run.directory / "stalls"
    manifests = cluster_manifests.write_manifests(
        run.directory / "previewed", _POLICIES, _NAMESPACES
    )
    with _server(run, manifests, stalls) as server:
        check_answers(server, sent[:1], is_patched)
        texts: dict[str, bytes | None] = {IDLE: None, **bodies()}
        made: dict[str, list[int]] = {}

        def turn(name: str) -> dict[str, float]:
            run.log_progress(f"previews: {name}")
            with _previewing(server, texts[name], run.cores.load) as answered:
                since = time.monotonic()
                found = run_open_loop(
                    server,
                    files,
                    rate=_RATE,
                    connections=CONNECTIONS,
                    seconds=run.profile.seconds * 2,
                    core=run.cores.load,
                )
                stall = longest_stall(stalls, since, time.monotonic())
            found |= {STALL: stall.delay * 1e3, WORK: stall.cpu * 1e3}
            found["previews answered"] = float(len(answered))
            made.setdefault(name, []).extend(answered)
            return found

        turns = {name: partial(turn, name) for name in texts}
        rounds = interleave(turns, run.profile.rounds)
    units = {**UNITS, STALL: "ms", WORK: "ms", "previews answered": ""}
    part.rows = {name: to_measurements(figures, units) for name, figures in rounds.items()}
    _compare(part.rows)
    part.notes += [
        f"{_RATE:g} reviews a second, on a cluster of {_POLICIES:,} policies and {_NAMESPACES:,} "
        "namespaces; the worker of previews shares the server's one core.",
        "The stall is a delay, which the other processes of the machine add to; the CPU time is "
        "of the loop's thread alone, from one callback to the next, with the reviews in between.",
        "One client sends the same text again as soon as it is answered.",
        *(f"{name}: {_statuses(answers)}." for name, answers in made.items() if answers),
    ]
    return part


def _compare(rows: Rows) -> None:
    idle = rows[IDLE]["p99"]
    for name, figures in rows.items():
        if name != IDLE:
            twice = Measurement(tuple(2 * value for value in idle.values), idle.unit)
            figures["p99, against alone"] = figures["p99"].ratio_to(idle)
            figures[BEYOND] = figures["p99"].minus(twice)


def worst(part: ReportTable, column: str) -> Measurement:
    """The highest of a figure over all texts, round by round."""
    measures = [figures[column] for name, figures in part.rows.items() if name != IDLE]
    values = zip(*(measure.values for measure in measures), strict=True)
    return Measurement(tuple(map(max, values)), measures[0].unit)


def _statuses(answers: list[int]) -> str:
    counts = {status: answers.count(status) for status in sorted(set(answers))}
    return ", ".join(f"{count} answered with {status}" for status, count in counts.items())


@contextmanager
def _server(run: Run, manifests: Path, stalls: Path) -> Iterator[Server]:
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    command: list[str | Path] = [sys.executable, "-m", "bench.stall_monitor", run.certs, str(port)]
    log = run.directory / "previewed.log"
    with running_process([*command, manifests, stalls], log, core=run.cores.server) as process:
        wait_until_ready(process, f"{url}/readyz", run.certs / "ca.crt")
        yield Server("podsettle", f"{url}/mutate", run.certs / "ca.crt", process)


@contextmanager
def _previewing(server: Server, text: bytes | None, core: int) -> Iterator[list[int]]:
    """Send a text again and again while the block runs; the statuses of the answers."""
    answered: list[int] = []
    over = threading.Event()
    client = server.connect()

    def send() -> None:
        # Of this thread alone, both.
        os.sched_setaffinity(0, {core})
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while not over.is_set():
            client.request("POST", "/preview", text)
            response = client.getresponse()
            response.read()
            if not over.is_set():
                answered.append(response.status)

    thread = threading.Thread(target=send)
    if text is not None:
        thread.start()
    try:
        yield answered
    finally:
        over.set()
        if text is not None:
            thread.join(60)
            if thread.is_alive():
                raise BenchError("a preview was not answered in a minute")
        client.close()
