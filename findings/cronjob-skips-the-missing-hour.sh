#!/bin/sh
# Software: github.com/robfig/cron/v3 3.0.1, by which CronJobs of Kubernetes 1.37 with a timeZone
#   find their next run; croniter 7.0.0 and cronsim 2.8 of Python.
# Guess, written before the run: a job at 2:30 in Berlin runs once on the day of 25 hours, at
#   3:30 or not at all on the day of 23 hours, and the same in each library.
# Behaviour: a CronJob has no run on the day of 23 hours and two on the day of 25. croniter has one
#   at 3:00, and two. cronsim, as Debian's cron, has one on each day.
# Seen on 2026-11-30: the lines below, for 29 March and 25 October of 2026.
# Needs Go 1.26, Python 3.11, the Go module proxy and PyPI. Ends with 1 if it is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check croniter==7.0.0 cronsim==2.8 tzdata==2026.6
cat >main.go <<'GO'
package main

import (
	"fmt"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

const form = "02T15:04-0700"

func main() {
	zone, _ := time.LoadLocation("Europe/Berlin")
	schedule, _ := cron.ParseStandard("30 2 * * *")
	for month, day := range map[time.Month]int{3: 29, 10: 25} {
		at := time.Date(2026, month, day, 0, 45, 0, 0, zone)
		first := schedule.Next(at)
		fmt.Println("CronJob:", first.Format(form), schedule.Next(first).Format(form))
	}
}
GO
cat >main.py <<'PYTHON'
from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

for library in (lambda *of: croniter(*of, ret_type=datetime)), CronSim:
    for month, day in (3, 29), (10, 25):
        start = datetime(2026, month, day, 0, 45, tzinfo=ZoneInfo("Europe/Berlin"))
        times = (time.strftime("%dT%H:%M%z") for time in islice(library("30 2 * * *", start), 2))
        print("cronsim:" if library is CronSim else "croniter:", *times)
PYTHON
go mod init finding >/dev/null 2>&1
go get github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
go run . | sort -r >seen
venv/bin/python main.py >>seen
cat seen
diff seen - <<'END'
CronJob: 30T02:30+0200 31T02:30+0200
CronJob: 25T02:30+0200 25T02:30+0100
croniter: 29T03:00+0200 30T02:30+0200
croniter: 25T02:30+0200 25T02:30+0100
cronsim: 29T03:00+0200 30T02:30+0200
cronsim: 25T02:30+0200 26T02:30+0100
END
