#!/bin/sh
# Software: sarif-tools 3.0.5 of Python, by which pipelines read SARIF 2.1.0.
# Guess, written before the run: `sarif --check error summary` does not count a result that has an
#   accepted suppression, nor one that is absent since the baseline, nor one of the kind "pass".
# Behaviour: it counts the first two as errors, and its exit code is 1. `sarif diff` between the
#   logs before and after a result became absent says "no changes". The level of "pass" is "none",
#   so it is no error. A file for --filter is needed to leave suppressed results out.
# Source: read_result_severity() in sarif/sarif_file_utils.py. Seen on 2026-12-01: the lines below.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check sarif-tools==3.0.5
cat >main.py <<'PYTHON'
import json
from pathlib import Path

for name, more in {
    "new": {"level": "error", "baselineState": "new"},
    "absent": {"level": "error", "baselineState": "absent"},
    "suppressed": {"level": "error", "suppressions": [{"kind": "inSource", "status": "accepted"}]},
    "pass": {"level": "none", "kind": "pass"},
}.items():
    result = {"ruleId": "rule", "message": {"text": "text"}, **more}
    tool = {"driver": {"name": "tool", "rules": [{"id": "rule"}]}}
    log = {"version": "2.1.0", "runs": [{"tool": tool, "results": [result]}]}
    Path(f"{name}.sarif").write_text(json.dumps(log))
PYTHON
venv/bin/python main.py
for name in new absent suppressed pass; do
	code=0
	venv/bin/sarif --check error summary "$name.sarif" >summary 2>/dev/null || code=$?
	echo "$name: $(grep ^error summary), exit code $code"
done >seen
venv/bin/sarif diff new.sarif absent.sarif 2>/dev/null | grep ^error >>seen
cat seen
diff seen - <<'END'
new: error: 1, exit code 1
absent: error: 1, exit code 1
suppressed: error: 1, exit code 1
pass: error: 0, exit code 0
error level: +0 -0 no changes
END
