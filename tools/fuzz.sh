#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Before Go 1.27 a run that ends on time may report the end of its own time as a failure (go.dev/issue/75804). Nothing but that line under
# the target's name is taken for it: a finding writes its input, a panic and a failed test print more.
ended_on_time() {
  [ "$(sed -n '/^--- FAIL/,/^FAIL$/p' "$log" | sed -e '/^--- FAIL/d' -e '/^FAIL$/d' -e 's/^ *//')" = "context deadline exceeded" ]
}

git grep -lE '^func Fuzz' -- '*_test.go' | while read -r file; do
  dir=$(dirname "$file")
  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | sed 's/^func //' | while read -r target; do
    echo "$dir $target"
    if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x -parallel 2 "./$dir" </dev/null >"$log" 2>&1; then
      tail -n 1 "$log"
    elif ended_on_time; then
      echo "ended on time, with nothing found"
    else
      cat "$log"
      exit 1
    fi
  done
done
