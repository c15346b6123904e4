#!/bin/bash
# Fails when the tests of a pure package run less of it than COVER_MIN percent
# (default 95). These packages decide who gets what and need no machine to be
# tested on, so there is no excuse.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
minimum=${COVER_MIN:-95}

packages=()
for package in internal/policy internal/alloc internal/plan internal/demand internal/stats internal/config internal/model internal/report internal/lab/bench/claim \
	internal/appid internal/appid/c45 internal/appid/flow internal/sdn/openflow internal/sdn/topology internal/sdn/qos \
	internal/edge/spec internal/edge/engine internal/edge/sim internal/edge/metrics internal/exposition; do
	if compgen -G "$package/*.go" >/dev/null; then packages+=("$package"); fi
done
mkdir -p coverage
failed=false
for package in "${packages[@]}"; do
	profile=coverage/${package##*/}.out
	if ! scripts/with-go.sh go test -coverprofile="$profile" "./$package" >coverage/log; then
		cat coverage/log
		echo "$package: tests fail"
		failed=true
		continue
	fi
	# A profile's lines are FILE:RANGE STATEMENTS TIMES.
	percent=$(awk 'NR > 1 { all += $2; if ($3 > 0) run += $2 }
		END { printf "%.1f", all ? 100 * run / all : 0 }' "$profile")
	echo "$package: $percent % (at least $minimum %)"
	if awk "BEGIN { exit !($percent < $minimum) }"; then
		scripts/with-go.sh go tool cover -func="$profile" | awk '$NF != "100.0%"'
		failed=true
	fi
done
! "$failed"
