#!/bin/bash
# Shows what tests left behind on the machine, and removes it.
#
#   scripts/leakcheck.sh snapshot >BEFORE
#   WEIR_TEST_RUN=ID run the tests
#   scripts/leakcheck.sh compare BEFORE ID
#   scripts/leakcheck.sh remove BEFORE ID
#
# A snapshot lists, one per line: named network namespaces, network interfaces
# and queueing disciplines of this namespace, pinned BPF objects, cgroups that
# tests made, mounts, and the packet filter's own chains and policies. compare takes a second snapshot
# and fails when it has lines the first had not, or when a queueing discipline
# of an interface that is still there is gone. Processes are told by the
# variable WEIR_TEST_RUN in their environment, which everything a test starts
# inherits, and besides by name where they gave up their parent.
#
# remove is for tests that were interrupted or failed badly: it ends the processes
# that the run started and removes namespaces, cgroups and pins that are new and
# have names as Weir gives them, and mounts below the folder for temporary files that
# are new, and says which.
#
# Teardown in the kernel takes its time, so compare looks again for a few
# seconds. What a container engine of the machine's own does at the same time
# is not held against the tests.
set -euo pipefail

settle_seconds=5
end_seconds=30
command_characters=200

# try COMMAND...: what it prints, nothing where it is missing or complains.
try() { if command -v "$1" >/dev/null; then "$@" 2>/dev/null || true; fi; }

# processes: "PID PPID NAME" of each, without needing ps. Not of those that
# have ended and that a careless init leaves unreaped.
processes() {
	{ cat /proc/[0-9]*/status 2>/dev/null || true; } |
		awk '/^Name:/ { name = $2 } /^State:/ { state = $2 } /^Pid:/ { pid = $2 }
			/^PPid:/ && state != "Z" { print pid, $2, name }'
}

# engine_running: the machine's own, not one of a test.
engine_running() { [ -S /var/run/docker.sock ] && processes | grep ' dockerd$' >/dev/null; }

# engine_lives VARIABLE: a dockerd has a variable in its environment, and a parent.
engine_lives() {
	processes | awk '$3 == "dockerd" && $2 != 1 { print $1 }' | while read -r pid; do
		if grep -qzx "$1" "/proc/$pid/environ"; then echo yes; fi
	done | grep yes >/dev/null
}

# orphans: engines and agents whose parent is gone, but not the shims of an engine that runs, of another
# run of tests: they never have one.
orphans() {
	local pid name engine
	processes | awk '$2 == 1 && $3 ~ /^(dockerd|containerd|weir)/ { print $1, $3 }' | while read -r pid name; do
		engine=$(tr '\0' '\n' <"/proc/$pid/environ" | grep '^WEIR_ENGINE=') || engine=
		if [ -z "$engine" ] || ! engine_lives "$engine"; then echo "process $pid $name"; fi
	done 2>/dev/null
}

# of_the_living: without the namespaces, cgroups and mounts of a run that goes on, whose
# names carry its process (internal/lab/testbed/stale.go): another one's, as the
# tests in question have ended.
of_the_living() {
	local kind name pid
	while read -r kind name; do
		pid=$(sed -nE 's/^(.*\/)?weir-(test-)?([0-9]+)-[0-9a-f]{8}-.*$/\3/p' <<<"$name")
		if [ -z "$pid" ] || [ ! -d "/proc/$pid" ]; then echo "$kind $name"; fi
	done
}

# remove_stale_locks: an agent that was killed leaves its lock for the next agent to remove, and
# after the last test no agent comes.
remove_stale_locks() {
	local lock
	for lock in /run/weir/netns-*.lock; do
		if [ -e "$lock" ]; then flock --nonblock "$lock" rm -f "$lock" || true; fi
	done
}

snapshot() {
	local skip_link='^$' skip_mount='^$'
	if engine_running; then
		skip_link='^(veth|br-|docker)'
		skip_mount='^(/var/run|/run|/var/lib)/(docker|containerd)/'
	fi
	try find /run/netns -mindepth 1 -maxdepth 1 -printf 'netns %f\n' | of_the_living
	try find /sys/fs/bpf -mindepth 1 -printf 'pin %p\n'
	remove_stale_locks
	try find /sys/fs/cgroup -maxdepth 2 -type d -name 'weir-test-*' -printf 'cgroup %p\n' | of_the_living
	try ip -o link show |
		awk -F': ' -v skip="$skip_link" '{ sub(/@.*/, "", $2); if ($2 !~ skip) print "link", $2 }'
	try tc qdisc show |
		awk -v skip="$skip_link" '{
			for (i = 1; i < NF; i++) if ($i == "dev") dev = $(i + 1)
			handle = ($3 == "0:") ? "" : " " $3
			if (dev !~ skip) print "qdisc", dev, $2 handle, ($0 ~ / root /) ? "root" : ""
		}'
	# /run/netns and /sys/fs/bpf are mounted once, by the first program to use them, and
	# stay; what is under /run/netns is listed above.
	awk -v skip="$skip_mount" '$5 !~ skip && $5 !~ "^/(run/netns|sys/fs/bpf)(/|$)" { print "mount", $5 }' \
		/proc/self/mountinfo | of_the_living
	local filter
	for filter in iptables ip6tables; do
		# A chain that is built in and accepts is the same as none.
		try "$filter-save" | awk -v filter="$filter" '
			/^\*/ { table = substr($1, 2) }
			/^:/ && $2 == "-" { print "chain", filter, table, substr($1, 2) }
			/^:/ && $2 != "-" && $2 != "ACCEPT" { print "policy", filter, table, substr($1, 2), $2 }'
	done
	try nft list tables | awk '$3 !~ /^(filter|nat|mangle|raw|security)$/ { print "nftables", $2, $3 }'
	orphans
}

# marked ID: processes started by the run ID, a line each.
marked() {
	local dir pid
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		if grep -qzx "WEIR_TEST_RUN=$1" "$dir/environ"; then
			echo "process $pid $(tr '\0\n' '  ' <"$dir/cmdline" | cut -c "-$command_characters")"
		fi
	done 2>/dev/null
}

# difference BEFORE AFTER: what is new, and the queueing disciplines that went.
difference() {
	comm -13 "$1" "$2" | sed 's/^/left behind: /'
	comm -23 "$1" "$2" | while read -r kind dev rest; do
		if [ "$kind" = qdisc ] && grep -qxF "link $dev" "$2"; then
			echo "not put back: qdisc $rest of $dev"
		fi
	done
}

# end_processes ID: those of the run, gently first: an engine's keeper removes
# what the engine was.
end_processes() {
	local signal found pids deadline
	for signal in TERM KILL; do
		found=$(marked "$1")
		[ -n "$found" ] || return 0
		pids=$(awk '{ print $2 }' <<<"$found")
		# shellcheck disable=SC2086 # numbers, to be split
		kill -s "$signal" $pids 2>/dev/null || true
		printf '%s\n' "$found" | sed 's/^/ended: /'
		deadline=$((SECONDS + end_seconds))
		while [ "$SECONDS" -lt "$deadline" ] && [ -n "$(marked "$1")" ]; do sleep 0.2; done
	done
}

# remove_new BEFORE AFTER: what is new and named as Weir names it.
remove_new() {
	comm -13 "$1" "$2" | while read -r kind name; do
		case $kind:$name in
		netns:weir-*) ip netns delete "$name" ;;
		cgroup:*/weir-test-*) find "$name" -depth -type d -exec rmdir {} + ;;
		pin:*/weir*) find "$name" -delete ;;
		mount:"${TMPDIR:-/tmp}"/*) umount -l "$name" ;;
		*) continue ;;
		esac </dev/null 2>/dev/null && echo "removed: $kind $name"
	done || true
}

case ${1:-} in
snapshot)
	snapshot | LC_ALL=C sort -u
	;;
compare)
	before=$2 id=${3:-}
	after=$(mktemp)
	trap 'rm -f "$after"' EXIT
	export LC_ALL=C
	deadline=$((SECONDS + settle_seconds))
	while :; do
		snapshot | sort -u >"$after"
		leaks=$(difference "$before" "$after"; if [ -n "$id" ]; then marked "$id" | sed 's/^/left behind: /'; fi)
		[ -n "$leaks" ] || exit 0
		[ "$SECONDS" -lt "$deadline" ] || break
		sleep 0.5
	done
	printf '%s\n' "$leaks"
	exit 1
	;;
remove)
	before=$2 id=$3
	after=$(mktemp)
	trap 'rm -f "$after"' EXIT
	export LC_ALL=C
	end_processes "$id"
	snapshot | sort -u >"$after"
	remove_new "$before" "$after"
	;;
*)
	echo "usage: scripts/leakcheck.sh snapshot | compare BEFORE [ID] | remove BEFORE ID" >&2
	exit 2
	;;
esac
