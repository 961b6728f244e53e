"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
CERTS = ROOT / "certs"
CHART = ROOT / "charts" / "podsettle"
CRD = CHART / "crds" / "podsettle.dev_settlepolicies.yaml"
DATA = ROOT / "tests" / "data"
FUZZ_CORPUS = ROOT / "tests" / "fuzz" / "corpus"
