#!/bin/sh
# Software: github.com/prometheus/otlptranslator 1.0.0, by which Prometheus and the exporters of
#   OpenTelemetry make names of metrics and labels.
# Guess, written before the run: memory_bytes_used in By becomes memory_bytes_used_bytes_total, and
#   a label with an underscore in front becomes key_x.
# Behaviour: a unit that is any word of the name is not appended. So no name tells by its end which
#   unit it has, and x.seconds.duration in s has the unit in the middle. A label's underscore stays.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later and the Go module proxy. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE="$directory/modules"
cat >main.go <<'GO'
package main

import (
	"fmt"

	"github.com/prometheus/otlptranslator"
)

func main() {
	names := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	for _, metric := range []otlptranslator.Metric{
		{Name: "memory.used", Unit: "By", Type: otlptranslator.MetricTypeMonotonicCounter},
		{Name: "memory.bytes.used", Unit: "By", Type: otlptranslator.MetricTypeMonotonicCounter},
		{Name: "x.seconds.duration", Unit: "s", Type: otlptranslator.MetricTypeHistogram},
	} {
		name, err := names.Build(metric)
		fmt.Println(metric.Name, metric.Unit, name, err)
	}
	label, err := (&otlptranslator.LabelNamer{}).Build("_x")
	fmt.Println("label _x", label, err)
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/prometheus/otlptranslator@v1.0.0 >/dev/null 2>&1
go run . >seen
cat seen
diff seen - <<'END'
memory.used By memory_used_bytes_total <nil>
memory.bytes.used By memory_bytes_used_total <nil>
x.seconds.duration s x_seconds_duration <nil>
label _x _x <nil>
END
