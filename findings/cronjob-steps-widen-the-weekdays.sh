#!/bin/sh
# Software: github.com/robfig/cron/v3 3.0.1, by which CronJobs of Kubernetes 1.37 and Argo's
#   CronWorkflows read a schedule; cronsim 2.8 of Python, which follows Debian's cron.
# Guess, written before the run: `0 0 */2 * 1` is a Monday on an odd day. A day of the month that
#   begins with * is no restriction for cron, so day and weekday both have to hold. 7 is Sunday.
# Behaviour: a step makes the field a restriction. The CronJob runs on each odd day and each Monday.
#   7 is refused, and `1/2` of the weekdays ends with Friday instead of Sunday.
# Source: getRange() in parser.go. Seen on 2026-11-30: the lines below, runs from Sunday 1 November.
# Needs Go 1.26, Python 3.11, the Go module proxy and PyPI. Ends with 1 if it is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cronsim==2.8
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	for _, line := range os.Args[1:] {
		fmt.Print("CronJob ", line, ":")
		schedule, err := cron.ParseStandard(line)
		if err != nil {
			fmt.Println(" refused")
			continue
		}
		at := time.Date(2026, 11, 1, 1, 0, 0, 0, time.UTC)
		for range 4 {
			at = schedule.Next(at)
			fmt.Print(at.Format(" Mon-02"))
		}
		fmt.Println()
	}
}
GO
cat >main.py <<'PYTHON'
import sys
from datetime import datetime
from itertools import islice

from cronsim import CronSim

for line in sys.argv[1:]:
    times = islice(CronSim(line, datetime(2026, 11, 1, 1)), 4)
    print("cron", line + ":", *(time.strftime("%a-%d") for time in times))
PYTHON
set -- "0 0 */2 * 1" "0 0 * * 7" "0 0 * * 1/2"
go mod init finding >/dev/null 2>&1
go get github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
go run . "$@" >seen
venv/bin/python main.py "$@" >>seen
cat seen
diff seen - <<'END'
CronJob 0 0 */2 * 1: Mon-02 Tue-03 Thu-05 Sat-07
CronJob 0 0 * * 7: refused
CronJob 0 0 * * 1/2: Mon-02 Wed-04 Fri-06 Mon-09
cron 0 0 */2 * 1: Mon-09 Mon-23 Mon-07 Mon-21
cron 0 0 * * 7: Sun-08 Sun-15 Sun-22 Sun-29
cron 0 0 * * 1/2: Mon-02 Wed-04 Fri-06 Sun-08
END
