#!/bin/bash
# A group of processes that take only what all others leave of the processors.
#
#   scripts/idle.sh make PID          makes one for as long as PID runs; prints its folder
#   scripts/idle.sh enter GROUP PID   takes a process in, and what it will start
#   scripts/idle.sh remove GROUP      ends what is still in it
#
# As root (scripts/as-root.sh). The scheduling class "idle" (chrt --idle) does not do: a
# process of it comes after those of its own group, and every session is a group
# (autogroups), every service and every container (cgroups). A cgroup whose cpu.idle is 1
# comes after all other groups: they push it aside at once when they have something to
# do. So this is one, below the root of the hierarchy with the controller cpu (version 2
# or 1; Linux 5.15). Where there is none, make says so and fails.
#
# Its name carries PID, so that leakcheck.sh takes it for nothing that is left, and the
# next make removes it if PID was killed.
set -euo pipefail

end_seconds=10

# hierarchies: where cgroups are mounted that may have the controller cpu.
hierarchies() {
	awk '{ for (i = 7; i < NF && $i != "-"; i++) continue
		if ($(i + 1) == "cgroup2" || $(i + 1) == "cgroup" && "," $(i + 3) "," ~ /,cpu,/) print $5 }' /proc/self/mountinfo
}

# remove GROUP
remove() {
	local group=$1 pid deadline=$((SECONDS + end_seconds))
	until [ ! -e "$group" ] || rmdir "$group" 2>/dev/null; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			echo "cannot remove $group: processes $(tr '\n' ' ' <"$group/cgroup.procs")do not end" >&2
			return 1
		fi
		while read -r pid; do kill -s KILL "$pid" 2>/dev/null || true; done <"$group/cgroup.procs"
		sleep 0.1
	done
}

# make PID
make() {
	local points point group pid
	mapfile -t points < <(hierarchies)
	for point in "${points[@]}"; do
		for group in "$point"/weir-test-*-idle; do
			pid=$(sed -nE 's/^weir-test-([0-9]+)-.*/\1/p' <<<"${group##*/}")
			if [ -n "$pid" ] && [ ! -d "/proc/$pid" ]; then remove "$group"; fi
		done
	done
	for point in "${points[@]}"; do
		group=$point/weir-test-$1-$(printf '%04x%04x' "$RANDOM" "$RANDOM")-idle
		mkdir "$group" 2>/dev/null || continue
		if [ -e "$group/cpu.idle" ] && echo 1 >"$group/cpu.idle"; then
			echo "$group"
			return
		fi
		rmdir "$group"
	done
	echo "no cgroup of this machine has cpu.idle" >&2
	return 1
}

case ${1:-}:$# in
make:2) make "$2" ;;
enter:3) echo "$3" >"$2/cgroup.procs" ;;
remove:2) remove "$2" ;;
*)
	echo "usage: scripts/idle.sh make PID | enter GROUP PID | remove GROUP" >&2
	exit 2
	;;
esac
