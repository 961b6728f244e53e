"""Compare two runs of a release by digests: `python -m release.compare FIRST SECOND`.

Two runs for the same commit have to give the same bytes. What may differ has a reason here.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

REASONS: Mapping[str, str] = {
    "cosign.pub": "each rehearsal makes a key of its own",
    "SHA256SUMS.sigstore.json": "a signature contains a random number",
    "registry/*/tags/sha256-*": "a signature contains a random number",
}
"""Why files may differ, by patterns of their names."""

# A tag's digest covers all that it names. Blobs have their digests as names.
_TAGS = "registry/docker/registry/v2/repositories/**/_manifests/tags/*/current/link"


def digests(directory: Path) -> dict[str, str]:
    """Return the digests of a release's files, and of what the tags in its registry name."""
    files = [path for path in directory.iterdir() if path.is_file()]
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (*files, *directory.glob(_TAGS))
    }


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str | None]:
    """Return the names of what differs, each with its reason, or None if there is no reason."""
    names = sorted(first.keys() | second.keys())
    return {
        name: _reason(name) if name in first and name in second else None
        for name in names
        if first.get(name) != second.get(name)
    }


def _reason(name: str) -> str | None:
    return next((why for pattern, why in REASONS.items() if fnmatchcase(name, pattern)), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what differs between two directories. The exit code is 1 if anything has no reason."""
    parser = argparse.ArgumentParser(prog="python -m release.compare", description=main.__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    options = parser.parse_args(arguments)
    first, second = digests(options.first), digests(options.second)
    if not first or not second:
        parser.error("a directory has no files")
    found = differences(first, second)
    for name, reason in found.items():
        print(f"{name}: {reason or 'differs without a known reason'}")
    print(f"{len(first.keys() | second.keys()) - len(found)} files and tags are the same")
    return 1 if None in found.values() else 0


if __name__ == "__main__":
    sys.exit(main())
