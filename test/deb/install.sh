#!/bin/bash
# Installs the packages in the folder $1, uses them, upgrades and removes them, on an overlay
# of this machine's files that lives in the folder $2. To be run by deb_test.go, in
# mount, network and PID namespaces of its own.
set -euo pipefail
packages=$1 work=$2

mount -t tmpfs layers "$work"
mkdir "$work"/{upper,inner,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" "$work/root"
root=$work/root
mkdir -p "$root/proc" "$root/sys" "$root/run" "$root/dev" "$root/tmp"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs run "$root/run"
mount -t tmpfs tmp "$root/tmp"
mount --rbind /dev "$root/dev"
for name in weir weir-edge weir-sdn weir-k8s weir-lab; do cp "$packages/$name"_*.deb "$root/tmp/$name.deb"; done
inside() { env -u WEIR_BIN PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" "$@"; }
fail() { echo "$*" >&2 && exit 1; }

# Before there were several packages, weir had the files of all: they move, in any order of the
# packages.
old=$root/tmp/old
for name in weir weir-edge weir-sdn; do inside dpkg-deb -x "/tmp/$name.deb" /tmp/old; done
mkdir "$old/DEBIAN"
printf '%s\n' 'Package: weir' 'Version: 0~20260101000000.x' "Architecture: $(dpkg --print-architecture)" \
	'Maintainer: x <x@example.org>' 'Description: Weir in one package' >"$old/DEBIAN/control"
inside dpkg-deb --root-owner-group --build /tmp/old /tmp/old.deb
inside dpkg -i /tmp/old.deb
inside dpkg -i /tmp/weir-edge.deb /tmp/weir-sdn.deb /tmp/weir-lab.deb /tmp/weir.deb
for name in weir weir-edge weir-sdn; do
	grep -q "^$name:" <<<"$(inside dpkg -S "/usr/lib/systemd/system/$name.service")" || fail "the unit of $name is not in its package"
done
inside dpkg -P weir-lab weir-edge weir-sdn weir

inside dpkg -i /tmp/weir.deb | tee "$root/tmp/said"
grep -q "weir agent --propose >/etc/weir/weir.yaml" "$root/tmp/said" || fail "the package does not say that a configuration is missing"
inside weir --version
lacking=$(inside weir bench 2>&1) && fail "weir bench works without weir-lab"
grep -q "install the package weir-lab" <<<"$lacking" || fail "without weir-lab, weir bench says $lacking"
inside dpkg -i /tmp/weir-edge.deb /tmp/weir-sdn.deb /tmp/weir-k8s.deb /tmp/weir-lab.deb
inside weir bench --help >/dev/null
inside weir sdn --help >/dev/null
inside weir-k8s --version
touch "$root"/etc/weir/{edge.yaml,k8s.env}
inside dpkg -P weir-edge weir-sdn weir-k8s
for left in edge.yaml k8s.env; do
	if [ -e "$root/etc/weir/$left" ]; then fail "purging left $left"; fi
done
[ -d "$root/etc/weir" ] || fail "purging weir-edge took weir's configuration"

ip link add wan0 type veth peer name far0
ip link set wan0 up
ip link set far0 up
before=$(tc qdisc show dev wan0)
printf 'uplink: wan0\nrate: 10mbit\ndocker: {enabled: false}\npodman: {enabled: false}\n' >"$root/etc/weir/weir.yaml"
inside weir agent --config /etc/weir/weir.yaml &
for _ in $(seq 100); do
	if inside weir ps >/dev/null 2>&1; then break; fi
	sleep 0.1
done
inside weir ps
grep -q "htb 7e0f:" <<<"$(tc qdisc show dev wan0)" || fail "the agent does not share out wan0"

inside dpkg -i /tmp/weir.deb
[ -s "$root/etc/weir/weir.yaml" ] || fail "an upgrade took the configuration"
inside weir ps >/dev/null || fail "an upgrade ended the agent"

inside dpkg -P weir-lab
inside dpkg -r weir
wait
after=$(tc qdisc show dev wan0)
[ "$before" = "$after" ] || fail "wan0 had $before, has $after"
if [ -e "$root/usr/bin/weir" ] || [ -e "$root/run/weir" ]; then fail "a removal left something"; fi
[ -s "$root/etc/weir/weir.yaml" ] || fail "a removal took the configuration"

inside dpkg -P weir
# What dpkg and the linker know is theirs; folders that programs share may be new.
left=$(cd "$work/upper" && find . -not -type c \( -path '*weir*' -o -not -type d \) |
	grep -vE '^\./(var/(lib/dpkg|log|cache)/|etc/ld\.so\.cache$)') || true
[ -z "$left" ] || fail "left over: $left"
echo "nothing is left"
