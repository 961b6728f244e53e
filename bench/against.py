"""Another commit measured beside this one: `python -m bench --against COMMIT`.

Each round starts a server of each commit, one after the other, and takes the same figures of both.
So the two figures of a pair are of the same minute. The servers of each round are new ones, because
the memory layout of a process changes its speed by 10 %.

The 95 % interval is that of the sign test, for the median of the pairs' ratios (memory: of their
differences). It assumes nothing about their distribution: of 20 pairs, it reaches from the sixth
lowest to the sixth highest. A row fails if its whole interval lies above the bound. So a run with
much noise fails no row, and its wide intervals show that it says little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import comb, inf
from pathlib import Path

from bench import cluster_manifests, previews, reviews
from bench.closed_loop import run_wrk
from bench.errors import BenchError
from bench.format import format_measurement, format_number
from bench.interleave import interleave
from bench.measurement import Measurement, to_measurements
from bench.open_loop import run_open_loop
from bench.report_table import ReportTable
from bench.run import CONNECTIONS, Run
from bench.servers import THIS_CODE, Code, Server, check_answers, serve_podsettle
from bench.text_table import Cells
from bench.throughput import is_patched

NAME = "against"
THERE, HERE = "other commit", "this commit"
_MAX_RATIO = 1.03
_MAX_MEBIBYTES_MORE = 1.0
# Each tail of the interval has at most this probability.
_TAIL = 0.025
# Rounds are many and short: the differences between two starts are larger than those between loads.
_ROUNDS_FACTOR = 4
_READY, _IDLE, _LOADED = "exec to ready", "memory, idle", "memory under load"
_P99 = "p99 at half of the peak rate"
_P99_PREVIEWS, _STALL = "p99 during previews", "longest event loop stall during previews"
_LARGE = "memory after previews, 10,000 namespaces, 1,000 policies"
_TEXT = "Tekton pods"
_LOADS = {
    "CPU time of a review, one template": (reviews.tekton(), CONNECTIONS),
    "CPU time of a review, one template, 1 connection": (reviews.tekton(), 1),
    "CPU time of a review, 250 KB pod": (reviews.of_size(250), CONNECTIONS),
}
_UNLIKE = "CPU time of a review, no two pods alike"
_UNITS = {
    **dict.fromkeys([*_LOADS, _UNLIKE], "µs"),
    _P99: "ms",
    _READY: "s",
    _IDLE: "MiB",
    _LOADED: "MiB",
    _P99_PREVIEWS: "ms",
    _STALL: "ms",
    _LARGE: "MiB",
}


def code_of(tree: Path) -> Code:
    """Return the code of another checkout. Raises BenchError if Python would import this one's.

    The packages are those of this environment if the other commit locks the same ones. Otherwise
    they are installed into an environment of its own.
    """
    python = sys.executable
    locked = Path("requirements/run.txt")
    if (tree / locked).read_bytes() != (THIS_CODE.tree / locked).read_bytes():
        _run(sys.executable, "-m", "venv", tree / ".venv")
        python = str(tree / ".venv/bin/python")
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        requirements = ("-r", tree / locked, "-r", tree / "requirements/build.txt")
        _run(*pip, "--require-hashes", *requirements)
        _run(*pip, "--no-deps", "--no-build-isolation", "--editable", tree)
    code = Code(tree, python)
    compile_modules(code)
    imported = _run(
        *code.python_command, "-c", "import webhook; print(webhook.__file__)", code=code
    )
    if not Path(imported.strip()).is_relative_to(tree):
        raise BenchError(f"Python imports {imported.strip()} in place of the code in {tree}")
    return code


def compile_modules(code: Code) -> None:
    """Write the byte code of a checkout, which podsettle's image contains too. Raises BenchError.

    Otherwise the first start would compile the modules, or every start, if PYTHONDONTWRITEBYTECODE
    is set.
    """
    _run(code.python, "-m", "compileall", "-q", code.tree / "webhook", code.tree / "bench")


def measure(run: Run, other: Code) -> ReportTable:
    """Measure both commits in turn. Less is better in each row."""
    part = ReportTable(NAME, "This commit and another one, in turn")
    rounds = run.profile.rounds * _ROUNDS_FACTOR
    # An older commit does not know the remedies of newer examples.
    examples = other.tree / "examples"
    manifests = cluster_manifests.copy_examples(run.directory / "examples", examples)
    namespaces, policies = run.profile.large
    large = cluster_manifests.write_manifests(run.directory / "large", policies, namespaces)
    bodies = {name: (reviews.variants(review), count) for name, (review, count) in _LOADS.items()}
    bodies[_UNLIKE] = (reviews.distinct_templates(), CONNECTIONS)
    loads = {
        name: (run.write_reviews(str(number), sent), count)
        for number, (name, (sent, count)) in enumerate(bodies.items())
    }
    first_load = next(iter(loads.values()))[0]
    codes = {THERE: other, HERE: THIS_CODE}
    peaks = []
    for name, code in codes.items():
        run.log_progress(f"against: answers and peak rate of {name}")
        with _serve(run, manifests, code) as server:
            for sent, _ in bodies.values():
                check_answers(server, sent, is_patched)
            peaks.append(_load(run, server, first_load, CONNECTIONS)["reviews/s"])
    rate = min(peaks) / 2
    preview = previews.bodies()[_TEXT]

    def figures_of(name: str) -> dict[str, float]:
        run.log_progress(f"against: {name}")
        figures = {}
        start = time.perf_counter()
        with _serve(run, manifests, codes[name]) as server:
            figures[_READY] = time.perf_counter() - start
            figures[_IDLE] = server.process.memory_mib()
            _load(run, server, first_load, CONNECTIONS)
            for row, (files, count) in loads.items():
                result = _load(run, server, files, count)
                figures[row] = 1e6 / result["reviews per CPU-second"]
            result = run_open_loop(
                server,
                first_load,
                rate=rate,
                connections=CONNECTIONS,
                seconds=run.profile.load_seconds / 2,
                core=run.cores.load,
            )
            figures[_P99] = result["p99"]
            figures[_LOADED] = server.process.tree_memory_mib()
        stalls = run.directory / "stalls"
        with previews.monitored_server(run, large, stalls, codes[name]) as server:
            result, _ = previews.load_during_previews(run, server, first_load, stalls, preview)
            figures[_P99_PREVIEWS], figures[_STALL] = result["p99"], result[previews.STALL]
            figures[_LARGE] = server.process.memory_mib()
        return figures

    results = interleave({name: partial(figures_of, name) for name in codes}, rounds)
    for name, of_rounds in results.items():
        for row, figure in to_measurements(of_rounds, _UNITS).items():
            part.rows.setdefault(row, {})[name] = figure
    part.notes += [
        f"{rounds} rounds. Each starts new servers of both commits, in turn, on the same core.",
        f"The preview is of {_TEXT}. The memory after previews is that of the server alone.",
    ]
    return part


def _serve(run: Run, manifests: Path, code: Code) -> AbstractContextManager[Server]:
    log = run.directory / "against.log"
    return serve_podsettle(run.certs, log, manifests=manifests, core=run.cores.server, code=code)


def _load(run: Run, server: Server, files: list[Path], connections: int) -> dict[str, float]:
    seconds = run.profile.load_seconds / 2
    return run_wrk(server, files, connections=connections, seconds=seconds, core=run.cores.load)


def _run(*command: str | Path, code: Code | None = None) -> str:
    """Run a command to its end and return its output. Raises BenchError if it fails."""
    env = {**os.environ, **(code.environment if code else {})}
    arguments = list(map(str, command))
    ran = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BenchError(f"{' '.join(arguments)}: {ran.stderr[-2000:]}")
    return ran.stdout


def comparison(figures: Mapping[str, Measurement]) -> Measurement:
    """Return the ratio of this commit to the other one in each round; of memory the difference."""
    here, there = figures[HERE], figures[THERE]
    return here.minus(there) if here.unit == "MiB" else here.ratio_to(there)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: of the sign test, for independent values.

    It is unbounded for fewer than six values, which cannot say as much.
    """
    ordered, count = sorted(values), len(values)
    # The probability that at most `cut` of the values are below the median.
    cut, below = 0, 1 / 2**count
    while below <= _TAIL:
        cut += 1
        below += comb(count, cut) / 2**count
    return (ordered[cut - 1], ordered[-cut]) if cut else (-inf, inf)


def is_worse(figures: Mapping[str, Measurement]) -> bool:
    """Return whether the whole interval of a row lies above its bound."""
    compared = comparison(figures)
    bound = _MAX_MEBIBYTES_MORE if compared.unit == "MiB" else _MAX_RATIO
    return median_interval(compared.values)[0] > bound


def comparison_table(part: ReportTable) -> Cells:
    """Return the table of a run: both medians, the comparison, its interval, the result."""
    table: Cells = [["", THERE, HERE, "ratio or difference", "95 % interval", "result"]]
    for name, figures in part.rows.items():
        compared = comparison(figures)
        medians = (
            format_measurement(Measurement((each.median,), each.unit))
            for each in (figures[THERE], figures[HERE], compared)
        )
        interval = "–".join(map(format_number, median_interval(compared.values)))
        table.append([name, *medians, interval, "WORSE" if is_worse(figures) else "held"])
    return table
