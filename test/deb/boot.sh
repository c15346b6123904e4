#!/bin/bash
# Boots the Debian in the folder $1 with systemd as its first process, on an overlay that
# lives in memory. $2 is an empty folder, $3 one with files to add. To be run by
# debian_test.go as the first process of mount, PID, UTS, IPC, cgroup and network namespaces
# of its own.
set -euo pipefail
tree=$1 work=$2 added=$3

mount --make-rprivate /
mount -t tmpfs -o mode=755 weir-test "$work"
mkdir "$work"/{upper,inner,root,docker}
root=$work/root
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/upper,workdir=$work/inner" "$root"
cp -a "$added/." "$root/"
mount -t proc proc "$root/proc"
# Settings that are not the network namespace's are the machine's.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
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
