"""Run a command where a real node can be started: `python -m tests.support.node -- COMMAND`."""

from __future__ import annotations

import sys

from tests.support.node.namespaces import enter
from tests.support.node.requirements import missing_requirements


def main() -> int:
    """Run the command, and return its exit code."""
    before, separator, command = sys.argv[1:], "", []
    if "--" in before:
        cut = before.index("--")
        before, separator, command = before[:cut], "--", before[cut + 1 :]
    if before or not separator or not command:
        print("usage: python -m tests.support.node -- COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    if missing := missing_requirements():
        print("\n".join(missing), file=sys.stderr)
        return 1
    return enter(command)


if __name__ == "__main__":
    sys.exit(main())
