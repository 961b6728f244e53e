#!/bin/sh
# Software: msgspec 0.22.0 and pydantic 2.14.4 of Python, which both decode JSON to datetime.
# Guess, written before the run: a time with nine digits of a second, as Go and the log files of
#   containers have it, is cut to microseconds, so 23:59:59.999999999 stays on its day. Pydantic
#   and Python's own fromisoformat do so.
# Behaviour: msgspec rounds. The time moves to the next day, and 2026 becomes 2027. Two programs
#   that read one log line with different libraries do not get the same time.
# Seen on 2026-11-29: the lines below.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check msgspec==0.22.0 pydantic==2.14.4
cat >main.py <<'PYTHON'
from datetime import datetime

import msgspec
import pydantic

for text in ("2026-12-31T23:59:59.123456499Z", "2026-12-31T23:59:59.999999999Z"):
    quoted = f'"{text}"'.encode()
    print("datetime", datetime.fromisoformat(text))
    print("pydantic", pydantic.TypeAdapter(datetime).validate_json(quoted))
    print("msgspec", msgspec.json.decode(quoted, type=datetime))
PYTHON
venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
datetime 2026-12-31 23:59:59.123456+00:00
pydantic 2026-12-31 23:59:59.123456+00:00
msgspec 2026-12-31 23:59:59.123456+00:00
datetime 2026-12-31 23:59:59.999999+00:00
pydantic 2026-12-31 23:59:59.999999+00:00
msgspec 2027-01-01 00:00:00+00:00
END
