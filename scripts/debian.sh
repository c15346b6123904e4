#!/bin/bash
# Makes a fresh Debian 12 with Docker in a folder, for tests that boot it, and prints where
# it is. Needs root. Ends with status 77, and why, where it cannot be had.
#
# It is made once, by debootstrap from the mirror that this machine's apt uses, and kept
# below /var/cache/weir-debian: no program writes into it.
set -euo pipefail

release=bookworm
packages=systemd,systemd-sysv,dbus,iproute2,iptables,docker.io,ca-certificates
# What else decides on the contents.
edition=1

unavailable() { printf '%s\n' "$*" >&2 && exit 77; }

cache=/var/cache/weir-debian
tree=$cache/$release-$(printf '%s\n' "$packages $edition $(dpkg --print-architecture)" | sha256sum | cut -c1-12)
[ "$(id -u)" -eq 0 ] || unavailable "making a Debian needs root"
if [ ! -d "$tree" ]; then
	command -v debootstrap >/dev/null || unavailable "debootstrap is not installed: make deps"
	mkdir -p "$cache"
	exec 8<"$cache"
	flock 8
fi
if [ ! -d "$tree" ]; then
	# shellcheck disable=SC2016 # apt expands these
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' | head -n 1)
	[ -n "$mirror" ] || unavailable "this machine's apt knows no mirror of Debian"
	rm -rf "$cache"/making.* # of a run that was killed
	making=$(mktemp -d "$cache/making.XXXXXX")
	trap 'rm -rf "$making"' EXIT
	# Not in this machine's mounts, where what it mounts could stay.
	if ! unshare --mount --pid --fork --kill-child debootstrap --variant=minbase --include="$packages" \
		"$release" "$making" "$mirror" >"$making.log" 2>&1 8<&-; then
		why=$(tail -n 1 "$making.log")
		rm -f "$making.log"
		unavailable "debootstrap cannot make a Debian: $why"
	fi
	rm -f "$making.log"
	rm -rf "$making"/var/cache/apt/archives/*.deb "$making"/var/lib/apt/lists/*
	chmod 755 "$making"
	mv "$making" "$tree"
	trap - EXIT
fi
echo "$tree"
