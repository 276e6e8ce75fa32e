#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
git grep -lE '^func Fuzz' -- '*_test.go' | while read -r file; do
  dir=$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | sed 's/^func //' | while read -r target; do
    echo "$dir $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x -parallel 2 "./$dir" </dev/null | tail -n 1
  done
done
