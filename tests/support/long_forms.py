"""Short and long forms of tests that repeat something. `make test-long` runs the long ones."""

from __future__ import annotations

import os

IS_LONG = os.environ.get("PODSETTLE_LONG_TESTS") == "1"
