"""Measure what dist/release installs: `python -m release.sizes`.

It downloads packages, and needs what `make release-dry-run` has made.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

OUT = ROOT / "dist/release"
_REGISTRY = "registry/docker/registry/v2"
_RUNS = 9
_MEGABYTE = 1_000_000


def measure_install(wheel: Path, extra: str, environment: Path) -> tuple[int, int]:
    """Install the wheel into a new environment. Return its packages' number and their bytes."""
    venv.create(environment, with_pip=True)
    python, before = str(environment / "bin/python"), _packages(environment)
    install = [python, "-m", "pip", "install", "--quiet", f"{wheel}{extra}"]
    subprocess.run(install, check=True)
    directories = [path for path in _packages(environment) if path not in before]
    installed = [path for path in directories if path.name.endswith(".dist-info")]
    return len(installed), sum(map(_bytes_below, directories))


def _packages(environment: Path) -> list[Path]:
    return sorted(environment.glob("lib/python*/site-packages/*"))


def _bytes_below(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def median_start(environment: Path) -> float:
    """Return how many seconds `kubectl settle scan --help` takes."""
    taken = []
    for _ in range(_RUNS):
        start = time.monotonic()
        command = [str(environment / "bin/kubectl-settle"), "scan", "--help"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.monotonic() - start)
    return statistics.median(taken)


def image_sizes(out: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield each image's name, its architecture, and its layers' bytes packed and unpacked."""
    for name in ("podsettle", "linger"):
        tags = out / _REGISTRY / "repositories" / name / "_manifests/tags"
        (tag,) = (path for path in tags.iterdir() if not path.name.startswith("sha256-"))
        index = json.loads(_blob(out, (tag / "current/link").read_text()))
        for entry in index["manifests"]:
            manifest: dict[str, Any] = json.loads(_blob(out, entry["digest"]))
            layers = [_blob(out, layer["digest"]) for layer in manifest["layers"]]
            unpacked = sum(len(gzip.decompress(layer)) for layer in layers)
            architecture = entry["platform"]["architecture"]
            yield name, architecture, sum(map(len, layers)), unpacked


def _blob(out: Path, digest: str) -> bytes:
    name = digest.strip().removeprefix("sha256:")
    return (out / _REGISTRY / "blobs/sha256" / name[:2] / name / "data").read_bytes()


def main() -> int:
    """Print the sizes of installs and images, and the time in which the client starts."""
    (wheel,) = OUT.glob("*.whl")
    with tempfile.TemporaryDirectory(prefix="sizes-") as scratch:
        print(f"{'install':<30} {'packages':>8} {'MB':>8}")
        for extra in ("", "[server]"):
            environment = Path(scratch) / f"environment{extra}"
            packages, size = measure_install(wheel, extra, environment)
            print(f"{f'podsettle{extra}':<30} {packages:>8} {size / _MEGABYTE:>8.1f}")
        seconds = median_start(Path(scratch) / "environment")
        print(f"\nkubectl settle scan --help: {seconds:.2f} s, the median of {_RUNS} runs")
    print(f"\n{'image':<30} {'packed MB':>10} {'unpacked MB':>12}")
    for name, architecture, packed, unpacked in image_sizes(OUT):
        title = f"{name} {architecture}"
        print(f"{title:<30} {packed / _MEGABYTE:>10.3f} {unpacked / _MEGABYTE:>12.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
