#!/bin/bash
# Fails when the tests of a pure package run less of it than COVER_MIN percent
# (default 95). These packages decide who gets what and need no machine to be
# tested on, so there is no excuse.
#
#   scripts/cover.sh [PROFILE]     of a run of their tests; without one it runs them
#   scripts/cover.sh list          prints the packages
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
minimum=${COVER_MIN:-95} profile=${1:-coverage/unit.out}
packages=(internal/share/{policy,alloc,plan,demand} internal/agent/stats internal/front/{config,exposition}
	internal/lab/{model,report,bench/claim} internal/apps internal/apps/flow internal/lab/train internal/sdn/{openflow,topology,qos,promise}
	internal/edge/{spec,engine,sim,metrics,minimums} internal/k8s/claims)

if [ "${1:-}" = list ]; then
	scripts/with-go.sh go list "${packages[@]/#/./}" ./internal/sdn/core
	exit
fi

if [ $# -eq 0 ]; then
	mkdir -p coverage
	scripts/with-go.sh go test -coverprofile="$profile" "${packages[@]/#/./}" >/dev/null
fi
failed=false
for package in "${packages[@]}"; do
	# A profile's lines are FILE:RANGE STATEMENTS TIMES.
	percent=$(awk -v package="/$package/[^/]*$" '{ file = $1; sub(/:.*/, "", file) }
		file ~ package { all += $2; if ($3 > 0) run += $2 }
		END { printf "%.1f", all ? 100 * run / all : 0 }' "$profile")
	echo "$package: $percent % (at least $minimum %)"
	if awk "BEGIN { exit !($percent < $minimum) }"; then
		scripts/with-go.sh go tool cover -func="$profile" | grep "/$package/[^/]*:" | awk '$NF != "100.0%"' || true
		failed=true
	fi
done
! "$failed"
