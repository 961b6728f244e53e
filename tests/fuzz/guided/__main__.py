"""python -m tests.fuzz.guided [SECONDS] [TARGET ...]: fuzz each target for its part of the time."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.guided.invariants import INVARIANTS
from tests.fuzz.guided.words import WORDS
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import Worker
from tests.support.paths import FUZZ_CORPUS, ROOT
from webhook.linger.build import SOURCE

HERE = Path(__file__).resolve().parent
OUT = ROOT / "dist" / "fuzz"
_DEFAULT_SECONDS = 600
LINGER = {
    "linger-durations": "FUZZ_DURATION",
    "linger-arguments": "FUZZ_ARGUMENTS",
    "linger-kubelet": "FUZZ_KUBELET",
}
"""The macro of each target in `linger.c`."""
_SANITIZERS = "-fsanitize=fuzzer,address,undefined"
_TIMED_AS = {"reviews": "admit", "workloads": "preview", "references": "references"}
"""The targets whose inputs the time fuzzer measures afterwards. atheris makes code much slower."""
_EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)|Done (\d+) in", re.MULTILINE)
_COVERAGE = re.compile(r"\bcov: (\d+)")


class Run(NamedTuple):
    """What one target did."""

    executions: int
    covered: int
    """The number of edges of the code that were reached."""
    found: tuple[str, ...]


def main() -> int:
    """Exit code 1 if something was found, 2 if a target could not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("seconds", nargs="?", type=float, default=_DEFAULT_SECONDS)
    known = [*INVARIANTS, *LINGER]
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(known))
    options = parser.parse_args()
    names = options.targets or known
    if unknown := set(names) - set(known):
        parser.error(f"unknown target {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    if set(names) & LINGER.keys() and shutil.which("clang") is None:
        print("guided: clang is not installed (Debian: apt install clang)", file=sys.stderr)
        return 2
    seconds = max(1, int(options.seconds / len(names)))
    print(f"guided: {', '.join(names)}, {seconds} s each", flush=True)
    failed = False
    for name in names:
        run = _run(name, seconds)
        print(f"{name}: {run.executions} inputs, {run.covered} edges, {len(run.found)} found")
        for text in run.found:
            print(f"  {text}", flush=True)
        failed = failed or bool(run.found)
    return int(failed)


def _run(name: str, seconds: int) -> Run:
    """Fuzz one target. Copy each input that was found to the corpus."""
    inputs, found = OUT / name / "inputs", OUT / name / "found"
    shutil.rmtree(found, ignore_errors=True)
    for directory in (inputs, found, FUZZ_CORPUS / name):
        directory.mkdir(parents=True, exist_ok=True)
    words = OUT / name / "words"
    words.write_text(_dictionary(WORDS.get(name, ("\0",))), encoding="ascii")
    ended = subprocess.run(
        [
            *_command(name),
            f"-max_total_time={seconds}",
            "-timeout=20",
            # It measures elapsed time, which other programs lengthen. _too_slow measures CPU time.
            "-report_slow_units=1000000",
            "-rss_limit_mb=2048",
            "-max_len=16384",
            # Python writes the traceback of what was found to standard error.
            f"-close_fd_mask={3 if name in LINGER else 1}",
            "-print_final_stats=1",
            f"-dict={words}",
            f"-artifact_prefix={found}/",
            str(inputs),
            str(FUZZ_CORPUS / name),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    log = OUT / name / "log"
    log.write_text(ended.stdout + ended.stderr, encoding="utf-8")
    texts = []
    for path in sorted(found.iterdir()):
        shutil.copy(path, FUZZ_CORPUS / name / path.name)
        texts.append(
            f"{(FUZZ_CORPUS / name / path.name).relative_to(ROOT)}; see {log.relative_to(ROOT)}"
        )
    if ended.returncode and not texts:
        texts.append(f"the fuzzer ended with {ended.returncode}; see {log.relative_to(ROOT)}")
    if name in _TIMED_AS:
        texts += _too_slow(_TIMED_AS[name], inputs.iterdir())
    return Run(
        max((int(a or b) for a, b in _EXECUTIONS.findall(ended.stderr)), default=0),
        max(map(int, _COVERAGE.findall(ended.stderr)), default=0),
        tuple(texts),
    )


def _command(name: str) -> list[str]:
    """Return the command of a target. Compile it if it is a part of linger."""
    if name not in LINGER:
        return [sys.executable, "-m", "tests.fuzz.guided.python_target", name]
    program = OUT / name / "program"
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-sanitize-recover=all", _SANITIZERS]
    subprocess.run(
        ["clang", *flags, f"-D{LINGER[name]}", f"-I{SOURCE}", f"-o{program}", HERE / "linger.c"],
        check=True,
    )
    return [str(program)]


def _too_slow(target: str, paths: Iterable[Path]) -> list[str]:
    """Return a text for each input that takes more CPU time than its length allows."""
    worker = Worker(target)
    texts = []
    for path in paths:
        body = path.read_bytes()
        allowed = TARGETS[target].allowed_seconds(body)
        # A busy machine may slow one of them down.
        outcomes = (worker.ask(body) for _ in range(3))
        if all(isinstance(each, str) or each > allowed for each in outcomes):
            texts.append(f"slow: {path.relative_to(ROOT)} takes more than {allowed * 1000:.0f} ms")
    worker.stop()
    return texts


def _dictionary(words: Iterable[str]) -> str:
    """Return libFuzzer's dictionary: a line with an escaped text in quotes for each word."""
    lines = []
    for word in words:
        octets = word.encode("utf-8", "surrogateescape")
        lines.append('"' + "".join(f"\\x{octet:02x}" for octet in octets) + '"\n')
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
