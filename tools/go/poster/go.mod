module podsettle.dev/poster

go 1.24
