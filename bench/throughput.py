"""`/mutate` against the least that its stack can do, and against Go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench import cluster_manifests, open_loop, reviews
from bench.interleave import interleave
from bench.measurement import Rows, to_measurements
from bench.report_table import ReportTable
from bench.run import CONNECTIONS, Run
from bench.servers import Server, check_answers, serve_agnhost, serve_echo, serve_podsettle

NAME = "throughput"
UNLIKE = "podsettle, no two pods alike"
_UNDISTURBED = 0.95
"""Of its core, for a server that never waits. On an idle machine it is more."""
_LATE = "generator late, p99"
_MOST_LATE = 0.5
"""Milliseconds."""


def measure(run: Run) -> ReportTable:
    """Reviews per second and CPU-second, at eight connections and at one; latency at half load."""
    part = ReportTable(NAME, "One core: /mutate, a bare ASGI echo, and Kubernetes' Go test webhook")
    bodies = reviews.variants(reviews.tekton())
    files = run.write_reviews("tekton", bodies)
    core = run.cores.server
    with ExitStack() as stack:
        manifests = cluster_manifests.copy_examples(run.directory / "examples")
        log = run.directory / "podsettle.log"
        ours = stack.enter_context(serve_podsettle(run.certs, log, manifests=manifests, core=core))
        answer = answer_to(ours, bodies[0])
        echo = stack.enter_context(serve_echo(run.certs, answer, run.directory / "echo.log", core))
        go = stack.enter_context(serve_agnhost(run.certs, run.directory / "agnhost.log", core))
        servers = {server.name: server for server in (ours, echo, go)}
        check_answers(ours, bodies, is_patched)
        check_answers(go, bodies, is_allowed)
        unlike = reviews.distinct_templates()
        check_answers(ours, unlike, is_patched)
        for connections in (CONNECTIONS, 1):
            run.log_progress(f"throughput: {', '.join(servers)}; connections: {connections}")
            contenders = {name: (server, files) for name, server in servers.items()}
            if connections == CONNECTIONS:
                contenders[UNLIKE] = (ours, run.write_reviews("unlike", unlike))
            found = run.measure_throughput(contenders, connections)
            for name, figures in found.items():
                part.rows[row(name, connections)] = figures
        peak = part.figure(row("podsettle", CONNECTIONS), "reviews/s").median
        for name, figures in _at_half_load(run, [ours, echo], files, peak / 2).items():
            part.rows[steady(name)] = figures
    size = sum(map(len, bodies)) / len(bodies)
    part.notes += [
        f"{len(bodies)} different reviews of {size:.0f} bytes on average, sent in turn; podsettle "
        f"answers each with a patch, {len(answer)} bytes.",
        "All of them are pods of one Tekton Task, so podsettle remembers what it decided on the "
        f"first. The {len(unlike):,} of which no two are alike are more than it remembers.",
        "The echo gives an answer of the same size and reads nothing. agnhost decodes the pod and "
        "answers without a patch.",
    ]
    part.notes += _disturbances(part)
    return part


def _disturbances(part: ReportTable) -> Iterator[str]:
    """What others on this machine have done to the figures."""
    ours = part.rows[row("podsettle", CONNECTIONS)]
    share = ours["reviews/s"].ratio_to(ours["reviews per CPU-second"]).median
    if share < _UNDISTURBED:
        yield (
            f"DISTURBED: under full load podsettle had {share:.0%} of its core; others had the "
            "rest. Measurement again on an idle machine."
        )
    late = max(part.figure(steady(name), _LATE).median for name in ("podsettle", "echo"))
    if late > _MOST_LATE:
        yield (
            f"DISTURBED: the generator of the steady load was late by {late:.1f} ms itself. "
            "Its latencies mean nothing."
        )


def row(name: str, connections: int) -> str:
    """How a row is called."""
    return f"{name}, {connections} connection{'s' if connections > 1 else ''}"


def steady(name: str) -> str:
    """The same, of the latencies at a steady rate."""
    return f"{name}, steady at half of podsettle's peak"


def answer_to(server: Server, review: bytes) -> bytes:
    """What a server answers to a review."""
    client = server.connect()
    try:
        return server.answer(review, client)
    finally:
        client.close()


def is_patched(answer: bytes) -> bool:
    """Whether a review was answered with a patch."""
    response = json.loads(answer)["response"]
    return response["allowed"] is True and bool(response.get("patch"))


def is_allowed(answer: bytes) -> bool:
    """Whether a review was answered at all, and not with an error."""
    response = json.loads(answer)["response"]
    return response["allowed"] is True


def _at_half_load(run: Run, servers: list[Server], files: list[Path], rate: float) -> Rows:
    run.log_progress(f"throughput: latency at {rate:.0f} reviews/s")

    def turn(server: Server) -> dict[str, float]:
        return open_loop.run_open_loop(
            server,
            files,
            rate=rate,
            connections=CONNECTIONS,
            seconds=run.profile.seconds,
            core=run.cores.load,
        )

    turns: dict[str, Callable[[], dict[str, float]]] = {
        server.name: lambda server=server: turn(server)  # type: ignore[misc]
        for server in servers
    }
    found = interleave(turns, run.profile.rounds)
    return {name: to_measurements(figures, open_loop.UNITS) for name, figures in found.items()}
