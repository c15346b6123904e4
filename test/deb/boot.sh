#!/bin/bash
# Boots the Debian in the folder $1 with systemd as its first process, on an overlay that
# lives in memory, in namespaces of its own; the network namespace is the caller's. $2 is a
# folder that nobody uses, $3 a cgroup of version 2 made for it. To be run by debian_test.go
# in mount, PID, UTS, IPC and cgroup namespaces of its own, as the first process.
set -euo pipefail
tree=$1 work=$2

mount --make-rprivate /
mount -t tmpfs -o mode=755 weir-test "$work"
mkdir "$work"/{upper,inner,root,docker}
root=$work/root
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/upper,workdir=$work/inner" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
# An engine's layers cannot be on another overlay.
mkdir -p "$root/var/lib/docker"
mount --bind "$work/docker" "$root/var/lib/docker"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs shm "$root/dev/shm"
mkdir -p "$root/run/systemd"
hostname weir-debian
cd "$root"
mkdir old
pivot_root . old
umount -l old
rmdir old
exec env -i container=weir-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/sbin/init --log-target=console --show-status=no </dev/null
