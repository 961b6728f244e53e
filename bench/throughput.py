"""The throughput of `/mutate`, compared with the echo and with a webhook in Go."""

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
# On an idle machine, a server under full load uses more of its core.
_MIN_CORE_SHARE = 0.95
_GENERATOR_DELAY = "generator delay, p99"
# A greater delay would be too large in comparison with the latencies.
_MAX_GENERATOR_DELAY_MILLISECONDS = 0.5


def measure(run: Run) -> ReportTable:
    """Measure reviews per second and per CPU-second, and latencies at half of the peak rate.

    The throughput is measured with eight connections and with one.
    """
    part = ReportTable(NAME, "One core: /mutate, a bare echo, and Kubernetes' Go test webhook")
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
            rows = run.measure_throughput(contenders, connections)
            for name, figures in rows.items():
                part.rows[row(name, connections)] = figures
        peak = part.figure(row("podsettle", CONNECTIONS), "reviews/s").median
        for name, figures in _at_half_load(run, [ours, echo], files, peak / 2).items():
            part.rows[constant_rate_row(name)] = figures
    size = sum(map(len, bodies)) / len(bodies)
    part.notes += [
        f"The load is {len(bodies)} different reviews of {size:.0f} bytes on average, sent in "
        f"turn. podsettle answers each with a patch. An answer has {len(answer)} bytes.",
        "All pods are of one Tekton Task, so podsettle caches the decision on the first one. In "
        f"the row 'no two pods alike', the pods are of {len(unlike):,} templates, which is more "
        "than the cache holds. So podsettle decides on each of them.",
        "The echo sends an answer of the same size and does not decode the review. agnhost decodes "
        "the pod and answers without a patch.",
    ]
    part.notes += _disturbances(part)
    return part


def _disturbances(part: ReportTable) -> Iterator[str]:
    """Yield a warning for each sign that other processes disturbed the measurement."""
    ours = part.rows[row("podsettle", CONNECTIONS)]
    share = ours["reviews/s"].ratio_to(ours["reviews per CPU-second"]).median
    if share < _MIN_CORE_SHARE:
        yield (
            f"DISTURBED: under full load, podsettle had only {share:.0%} of its core, because of "
            "other processes. Measure again on an idle machine."
        )
    delay = max(
        part.figure(constant_rate_row(name), _GENERATOR_DELAY).median
        for name in ("podsettle", "echo")
    )
    if delay > _MAX_GENERATOR_DELAY_MILLISECONDS:
        yield (
            f"DISTURBED: the generator of the constant rate was late by {delay:.1f} ms. The "
            "latencies at this rate mean nothing."
        )


def row(name: str, connections: int) -> str:
    """Return the name of a server's row."""
    return f"{name}, {connections} connection{'s' if connections > 1 else ''}"


def constant_rate_row(name: str) -> str:
    """Return the name of the row with a server's latencies at a constant rate."""
    return f"{name}, constant rate, half of podsettle's peak"


def answer_to(server: Server, review: bytes) -> bytes:
    """Return a server's answer to a review."""
    client = server.connect()
    try:
        return server.answer(review, client)
    finally:
        client.close()


def is_patched(answer: bytes) -> bool:
    """Return whether an answer contains a patch."""
    response = json.loads(answer)["response"]
    return response["allowed"] is True and bool(response.get("patch"))


def is_allowed(answer: bytes) -> bool:
    """Return whether an answer allows the pod."""
    response = json.loads(answer)["response"]
    return response["allowed"] is True


def _at_half_load(run: Run, servers: list[Server], files: list[Path], rate: float) -> Rows:
    run.log_progress(f"throughput: latency at {rate:.0f} reviews/s")

    def load(server: Server) -> dict[str, float]:
        return open_loop.run_open_loop(
            server,
            files,
            rate=rate,
            connections=CONNECTIONS,
            seconds=run.profile.load_seconds,
            core=run.cores.load,
        )

    measurements: dict[str, Callable[[], dict[str, float]]] = {
        server.name: lambda server=server: load(server)  # type: ignore[misc]
        for server in servers
    }
    results = interleave(measurements, run.profile.rounds)
    return {name: to_measurements(figures, open_loop.UNITS) for name, figures in results.items()}
