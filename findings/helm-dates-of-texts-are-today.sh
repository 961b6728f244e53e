#!/bin/sh
# Software: github.com/Masterminds/sprig/v3 3.3.0, the functions of templates in Helm 4.3.2.
# Guess, written before the run: `{{ "2001-03-01" | date "Jan" }}` is Mar, or an error.
# Behaviour: date takes each text for the current time, without an error, so what it writes changes
#   from day to day. toDate has to read the text first.
# Source: dateInZone() in date.go. Seen on 2026-12-01: the lines below.
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
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

func main() {
	today := time.Now().Format("2006-01-02")
	for _, text := range []string{
		`"2001-03-01" | date "2006-01-02"`, `"2001-03-01" | toDate "2006-01-02" | date "2006-01-02"`,
	} {
		var result strings.Builder
		parsed := template.Must(template.New("").Funcs(sprig.TxtFuncMap()).Parse("{{ " + text + " }}"))
		if err := parsed.Execute(&result, nil); err != nil {
			panic(err)
		}
		fmt.Println(text, "is", strings.ReplaceAll(result.String(), today, "today"))
	}
}
GO
go mod init finding >/dev/null 2>&1
go get github.com/Masterminds/sprig/v3@v3.3.0 >/dev/null 2>&1
go run . >seen 2>/dev/null
cat seen
diff seen - <<'END'
"2001-03-01" | date "2006-01-02" is today
"2001-03-01" | toDate "2006-01-02" | date "2006-01-02" is 2001-03-01
END
