"""python -m tests.fuzz.guided.python_target NAME [LIBFUZZER_OPTION ...]: one target of atheris."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["webhook", "kubernetes.aio.config"]):
    from tests.fuzz.guided.invariants import INVARIANTS


def main() -> None:
    """Does not return: libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], *options], INVARIANTS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
