#!/bin/sh
# Software: k8s.io/apimachinery 0.37.2 (meta/v1, MicroTime), by which the API server reads renewTime
#   of a Lease and eventTime of an Event; kubernetes 37.0.2 of Python.
# Guess, written before the run: a MicroTime is any time of RFC 3339, with any number of digits
#   behind the second, as a Time is. Python's client sends a form that the API server takes.
# Behaviour: exactly six digits are taken. No digits, one digit and nine digits are errors. Python's
#   client leaves the digits out if the microseconds are 0, so it sends a Lease that is refused for
#   `replace(microsecond=0)`, and once in a million times otherwise.
# Source: RFC3339Micro in micro_time.go, and isoformat() in the client. Seen on 2026-12-01: the
#   lines below.
# Needs Go 1.26 or later, Python 3.11 or later, the Go module proxy and PyPI. Ends with 1 if the
#   behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check kubernetes==37.0.2
cat >main.py <<'PYTHON'
from datetime import UTC, datetime

from kubernetes import client

api = client.ApiClient(client.Configuration(host="http://localhost"))
for microsecond in 0, 5:
    time = datetime(2026, 12, 1, 10, 0, 0, microsecond, UTC)
    lease = client.V1Lease(spec=client.V1LeaseSpec(renew_time=time))
    print(api.sanitize_for_serialization(lease)["spec"]["renewTime"])
PYTHON
cat >main.go <<'GO'
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	texts := []string{"2026-12-01T10:00:00Z", "2026-12-01T10:00:00.5Z", "2026-12-01T10:00:00.123456789Z"}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		texts = append(texts, lines.Text())
	}
	for _, text := range texts {
		quoted, _ := json.Marshal(text)
		time := json.Unmarshal(quoted, &meta.Time{})
		micro := json.Unmarshal(quoted, &meta.MicroTime{})
		fmt.Printf("%s Time: %v, MicroTime: %v\n", text, time == nil, micro == nil)
	}
}
GO
go mod init finding >/dev/null 2>&1
go get k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go build -gcflags=all='-N -l' -o times . 2>/dev/null
venv/bin/python main.py | ./times >seen
cat seen
diff seen - <<'END'
2026-12-01T10:00:00Z Time: true, MicroTime: false
2026-12-01T10:00:00.5Z Time: true, MicroTime: false
2026-12-01T10:00:00.123456789Z Time: true, MicroTime: false
2026-12-01T10:00:00+00:00 Time: true, MicroTime: false
2026-12-01T10:00:00.000005+00:00 Time: true, MicroTime: true
END
