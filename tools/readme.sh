#!/usr/bin/env bash
# Runs the commands of the README, in their order, in a copy of the working tree's tracked files with a home of its own, so that what the
# README promises is what happens. `go test ./...` is left out: it is run before this.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$tree"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$tree"
GOMODCACHE=$(go env GOMODCACHE) GOCACHE=$(go env GOCACHE)
export GOMODCACHE GOCACHE XDG_DATA_HOME="$tree/data"
script=$(awk '/^```sh$/ {inside=1; next} /^```$/ {inside=0} inside' README.md | grep -v '^go test')
cd "$tree"
set -x
eval "$script"
