# The keeper of a private container engine.
#
# Usage: unshare --mount --propagation slave sh -c "$(cat engine.sh)" sh DIR NAME
#
# It is the first process of the engine's mount namespace, covers the paths
# that engines have compiled in, says "ready", and waits until its standard
# input is closed: by Engine.Stop, or by the kernel when the process that
# started the engine dies in any way. Then it ends and removes all that the
# engine was.
#
#   DIR    the engine's directory; removed at the end
#   NAME   the cgroup of the engine's containers and the value of WEIR_ENGINE
#          in the environment of the engine's own processes
#
# What the trap calls looks unreachable to shellcheck:
# shellcheck shell=sh disable=SC2317
set -u
dir=$1
name=$2
mark="WEIR_ENGINE=$name"

cgroups() {
	for group in "/sys/fs/cgroup/$name" /sys/fs/cgroup/*/"$name"; do
		[ -d "$group" ] && echo "$group"
	done
}

# The engine, containerd and the shims carry the mark; containers are in the
# cgroup. grep does not carry the mark itself.
survivors() {
	{
		grep -lzxF -- "$mark" /proc/[0-9]*/environ | sed 's|^/proc/\([0-9]*\)/.*|\1|'
		for group in $(cgroups); do
			find "$group" -name cgroup.procs -exec cat {} +
		done
	} 2>/dev/null | sort -un
}

cleanup() {
	trap '' HUP INT TERM
	trap - EXIT
	# A graceful end lets the engine take its interfaces and rules with it.
	pid=$(cat /run/docker.pid 2>/dev/null)
	if [ -n "$pid" ] && grep -qzxF -- "$mark" "/proc/$pid/environ" 2>/dev/null; then
		kill -TERM "$pid"
		tries=0
		while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
			sleep 0.1
			tries=$((tries + 1))
		done
	fi
	tries=0
	while pids=$(survivors); [ -n "$pids" ] && [ "$tries" -lt 100 ]; do
		# The list is of numbers and must be split.
		# shellcheck disable=SC2086
		kill -KILL $pids 2>/dev/null
		sleep 0.05
		tries=$((tries + 1))
	done
	for group in $(cgroups); do
		find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
	done
	umount -l "$dir/data" "$dir/covers" 2>/dev/null
	# As rm does with --one-file-system, which not every rm knows.
	find "$dir" -xdev ! -type d -exec rm -f {} +
	find "$dir" -xdev -depth -type d -exec rmdir {} +
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

cd / || exit 1

# Our copies of namespace mounts would keep namespaces of others alive after
# their owners have deleted them.
while read -r _ _ _ _ point rest; do
	case $rest in
	*" - nsfs "*) umount -l "$point" 2>/dev/null ;;
	esac
done </proc/self/mountinfo

# Engines put sockets and namespaces in /run/docker and /run/containerd, and
# would ask the host's firewalld through /run/dbus.
mount -t tmpfs -o mode=0755 weir-engine-run /run || exit 1
# On a tmpfs, what the engine writes is gone with the mount namespace even if
# this script is killed.
mount -t tmpfs -o mode=0711 weir-engine-data "$dir/data" || exit 1
# Engines write keys to /etc/docker, make /opt/containerd, and keep the files of a
# swarm's load balancers in /var/lib/docker, wherever their data are. Where a
# kernel has no overlay file system, so be it.
mount -t tmpfs -o mode=0700 weir-engine-covers "$dir/covers" || exit 1
for covered in /etc /opt /var/lib; do
	cover="$dir/covers$covered"
	[ -d "$covered" ] && mkdir -p "$cover/upper" "$cover/work" &&
		mount -t overlay -o "lowerdir=$covered,upperdir=$cover/upper,workdir=$cover/work" weir-engine-covers "$covered"
done

echo ready
read -r _
exit 0
