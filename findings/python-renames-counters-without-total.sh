#!/bin/sh
# Software: prometheus_client 0.26.0 of Python (parser and exposition), for Prometheus' text format.
# Guess, written before the run: a sample that is read keeps its name, and is exposed under it. The
#   text format, unlike OpenMetrics, does not ask for _total at the end of a counter.
# Behaviour: a counter without _total gets it when it is read, so a program that looks for the name
#   that `curl` shows finds nothing, and one that reads and exposes it again renames it. The
#   kubelet has such a counter. An untyped sample or a gauge keeps its name.
# Seen on 2026-11-30: the lines below.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check prometheus_client==0.26.0
cat >main.py <<'PYTHON'
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

NAME = "kubelet_server_expiration_renew_errors"


class Scraped:
    def __init__(self, text):
        self.text = text

    def collect(self):
        return text_string_to_metric_families(self.text)


for kind in "counter", "gauge", "untyped":
    registry = CollectorRegistry()
    registry.register(Scraped(f"# TYPE {NAME} {kind}\n{NAME} 3\n"))
    print(f"{kind}: found under its name:", registry.get_sample_value(NAME))
    print("exposed:", generate_latest(registry).decode().splitlines()[-1])
PYTHON
venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
counter: found under its name: None
exposed: kubelet_server_expiration_renew_errors_total 3.0
gauge: found under its name: 3
exposed: kubelet_server_expiration_renew_errors 3.0
untyped: found under its name: 3
exposed: kubelet_server_expiration_renew_errors 3.0
END
