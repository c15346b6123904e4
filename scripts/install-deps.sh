#!/bin/bash
# Installs what building, testing or showing Weir needs and this machine lacks.
#
#   scripts/install-deps.sh [GROUP...]      default: every group
#
#   build   Go
#   bpf     clang, llvm and headers: only to recompile bpf/*.c, whose objects
#           are committed
#   test    what the tests drive: iproute2, a container engine, ...
#   lint    shellcheck (golangci-lint is built from its Go module)
#   demo    what `weir demo` drives
#   edge    what `weir demo edge` drives besides
#   bench   what `weir bench` measures or compares with: what has no package here
#           is named and left out
#   vm      QEMU and what goes into its virtual machines; where there is no QEMU
#           new enough, says so and goes on: the suite vm is skipped then
#
# For Debian 12 or newer and Ubuntu 22.04 or newer, as root or through sudo. Ubuntu
# Ubuntu 22.04 has no HAProxy new enough for test and edge: print what to do before anything is installed.
# Each thing is looked for first, by what it must do and not by package: with
# everything there, nothing is run, read from the network or written. Programs
# are held to minimum versions; Go modules and Go tools are pinned by go.sum.
#
# On Debian 12 the distribution's Go cannot read today's go.mod files and its
# QEMU (7.2) crashes kernel 6.12, so both come from Debian's own backports, whose
# source is added next to the machine's existing one, on the same mirror.
#
# Docker is for tests that start an engine of their own. Where it is missing
# it is installed without its service being started or enabled; where any
# engine is installed, it is left alone.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"

say() { printf 'deps: %s\n' "$*"; }
die() { printf 'deps: %s\n' "$*" >&2; exit 1; }

# at_least A B: version A is B or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		env "$@"
	elif command -v sudo >/dev/null; then
		sudo env "$@"
	else
		die "not root and no sudo: run scripts/install-deps.sh as root once"
	fi
}

# --- what must be there -------------------------------------------------------

# need GROUP PACKAGE WHY CHECK...: PACKAGE is missing unless CHECK succeeds.
needs=()
need() { needs+=("$1"$'\t'"$2"$'\t'"$3"$'\t'"${*:4}"); }

has() { command -v "$1" >/dev/null; }

# has_version MINIMUM COMMAND...: the first version number COMMAND prints.
has_version() {
	local minimum=$1 version
	shift
	has "$1" || return 1
	version=$("$@" 2>&1 </dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1) || return 1
	at_least "$version" "$minimum"
}

has_header() { [ -e "/usr/include/$1" ] || compgen -G "/usr/include/*-linux-gnu/$1" >/dev/null; }

has_go() { "$root/scripts/with-go.sh" --which >/dev/null 2>&1; }

# Ubuntu's chromium is a snap, which services and build machines cannot run: there
# the tests that need it are skipped.
has_browser() { has chromium || has chromium-browser || has google-chrome || [ "$(os_release ID)" = ubuntu ]; }

# A Debian is made from the mirror that apt uses, which on others has none.
has_debootstrap() { has debootstrap || [ "$(os_release ID)" != debian ]; }

# The files that every version's package has without its service.
has_tomcat() { compgen -G '/usr/share/tomcat*/bin/bootstrap.jar' >/dev/null; }

# Debian's package is for its own Python, which need not be the first of PATH.
has_osken() { python3 -c 'import os_ken' 2>/dev/null || /usr/bin/python3 -c 'import os_ken' 2>/dev/null; }

has_certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ]; }

need build ca-certificates 'for Go to fetch modules' has_certificates
need build golang-go 'to build Weir' has_go

need bpf clang 'to compile the BPF programs' has_version 14.0 clang --version
need bpf llvm 'to strip the BPF objects (llvm-strip)' has llvm-strip
need bpf libbpf-dev 'for the BPF helper headers' has_header bpf/bpf_helpers.h
need bpf linux-libc-dev 'for the kernel headers' has_header asm/types.h

need test gcc 'for the race detector in tests' has gcc
need test iperf3 'to check the sender of weir bench netmodes against it' has iperf3
need test libc6-dev 'for the race detector in tests' has_header stdlib.h
need test iproute2 'to build and inspect test networks (ip, tc)' has_version 5.10 tc -V
need test iptables 'for NAT in test networks and container engines' has iptables
need test nftables 'for an operator'"'"'s own rules in test networks' has nft
need test procps 'to switch on forwarding in test networks (sysctl)' has sysctl
need test util-linux 'to start programs in namespaces (nsenter, unshare)' has nsenter
need test busybox-static 'for container images built without a registry' has /bin/busybox
need test python3-pip 'to fetch golden OpenFlow packets' has pip3
need test docker.io 'for a container engine of the tests'"'"' own' has_version 20.10 dockerd --version

need test debootstrap 'for a fresh Debian to install the package in' has_debootstrap
need test xz-utils 'to make and read packages' has xz
need test prometheus 'to check alert rules and metrics (promtool)' has promtool
need test openvswitch-switch 'for a real OpenFlow switch (ovs-vswitchd)' has ovs-vswitchd
need test curl 'for the users of a service whose waits are measured' has curl
need test chromium 'to look at the dashboard in a browser' has_browser
need test haproxy 'for the service proxy of weir-edge' has_version 2.6 haproxy -v

need lint shellcheck 'to check shell scripts' has shellcheck

need demo busybox-static 'for container images built without a registry' has /bin/busybox
need demo docker.io 'for a container engine of the demo'"'"'s own' has_version 20.10 dockerd --version
need demo iproute2 'to build the demo network (ip, tc)' has_version 5.10 tc -V
need demo iptables 'for NAT in the demo network' has iptables
need demo procps 'to switch on forwarding in the demo network (sysctl)' has sysctl
need demo util-linux 'to start programs in namespaces (nsenter)' has nsenter

need edge haproxy 'for the service proxy of weir-edge' has_version 2.6 haproxy -v

need bench busybox-static 'for container images built without a registry' has /bin/busybox
need bench docker.io 'for the nodes of weir bench picasso' has_version 20.10 dockerd --version
need bench iproute2 'to build and inspect networks (ip, tc)' has_version 5.10 tc -V
need bench iptables 'for NAT of container engines' has iptables
need bench procps 'to switch on forwarding (sysctl)' has sysctl
need bench util-linux 'to start programs in namespaces (nsenter)' has nsenter
need bench haproxy 'for the service proxy of weir-edge' has_version 2.6 haproxy -v
need bench openvswitch-switch 'for the switch of weir bench sdn --figures (ovs-vswitchd)' has ovs-vswitchd
need bench nginx-light 'for a web server of weir bench picasso' has nginx
need bench default-jre-headless 'to run tomcat' has java
need bench tomcat10-common 'for a web server of weir bench picasso' has_tomcat
need bench python3-os-ken 'for the controller that weir bench all compares with' has_osken

need vm qemu-system-x86 'to boot kernels (amd64)' has_version 10.0 qemu-system-x86_64 --version
need vm qemu-system-arm 'to boot kernels (arm64)' has_version 10.0 qemu-system-aarch64 --version
need vm busybox-static 'for the virtual machines' has /bin/busybox
need vm iproute2 'for the virtual machines (ip, tc)' has_version 5.10 tc -V
need vm iptables 'for the virtual machines' has iptables
need vm wireguard-tools 'for the virtual machines' has wg
need vm docker.io 'for the virtual machines' has_version 20.10 dockerd --version
need vm procps 'for the virtual machines (sysctl)' has sysctl
need vm util-linux 'for the virtual machines (nsenter, unshare)' has nsenter
need vm xz-utils 'to unpack kernel modules' has xz

# --- how it gets there --------------------------------------------------------

apt_is_fresh=false
apt_update() {
	local try
	for try in 1 2 3; do
		say "reading the package lists"
		if as_root apt-get -qq -o Acquire::Retries=3 update; then
			apt_is_fresh=true
			return
		fi
		# A fresh machine may be busy updating itself.
		[ "$try" = 3 ] || sleep 10
	done
	return 1
}

# apt_install [-t RELEASE] PACKAGE...
apt_install() {
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	as_root DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
		-o Dpkg::Use-Pty=0 -o Acquire::Retries=3 install "$@" >&2
}

# candidate PACKAGE [RELEASE]: the version apt would install, without epoch.
candidate() {
	LC_ALL=C apt-cache ${2:+-t "$2"} policy "$1" |
		sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9][^ ]*\)$/\2/p'
}

os_release() { (. /etc/os-release && eval "printf '%s' \"\${$1:-}\""); }

# add_backports RELEASE WHY: on the mirror this machine already uses. apt itself
# says which that is, for any format of its source lists.
add_backports() {
	local release=$1 why=$2 configured mirror keyring file=/etc/apt/sources.list.d/weir-backports.list
	# shellcheck disable=SC2016 # apt expands these
	configured=$(apt-get indextargets --format '$(CODENAME) $(RELEASE)')
	if grep -qw -- "$release" <<<"$configured"; then return; fi
	# shellcheck disable=SC2016
	mirror=$(apt-get indextargets --format '$(REPO_URI)' \
		'Created-By: Packages' "Release: ${release%-backports}" 'Component: main')
	mirror=${mirror%%$'\n'*}
	[ -n "$mirror" ] || die "cannot tell this machine's Debian mirror; add $release to its apt sources"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -e "$keyring" ] || keyring=
	say "adding the apt source $release in $file: $why"
	printf '# for building and testing Weir\ndeb %s%s %s main\n' \
		"${keyring:+[signed-by=$keyring] }" "$mirror" "$release" |
		as_root tee "$file" >/dev/null
	if ! apt_update; then
		as_root rm -f "$file"
		die "the mirror $mirror has no $release: $why; install a newer one by hand"
	fi
}

install_go() {
	local version package
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	version=$(candidate golang-go)
	if [ -n "$version" ] && at_least "${version%%~*}" 1.21; then
		say "installing golang-go $version: to build Weir"
		apt_install golang-go
		return
	fi
	package=$(apt-cache search --names-only '^golang-1\.[0-9]+-go$' | cut -d' ' -f1 | sort -V | tail -n 1)
	version=${package#golang-}
	if [ -n "$package" ] && at_least "${version%-go}" 1.21; then
		say "installing $package: to build Weir (golang-go is too old)"
		apt_install "$package"
		return
	fi
	[ "$(os_release ID)" = debian ] || die "no package of Go 1.21 or newer: install Go by hand"
	add_backports "$(os_release VERSION_CODENAME)-backports" "this release's Go is too old"
	version=$(candidate golang-go "$(os_release VERSION_CODENAME)-backports")
	say "installing golang-go $version from backports: to build Weir"
	apt_install -t "$(os_release VERSION_CODENAME)-backports" golang-go
}

# Packages ask /usr/sbin/policy-rc.d before they start services; 101 is "no".
policy=/usr/sbin/policy-rc.d
hold_services() {
	trap release_services EXIT
	if as_root test -e "$policy.before-weir"; then release_services; fi
	if as_root test -e "$policy"; then as_root mv "$policy" "$policy.before-weir"; fi
	printf '#!/bin/sh\n# put here by install-deps.sh of Weir for the time of one installation\nexit 101\n' |
		as_root tee "$policy" >/dev/null
	as_root chmod 755 "$policy"
}
release_services() {
	trap - EXIT
	as_root rm -f "$policy"
	if as_root test -e "$policy.before-weir"; then as_root mv "$policy.before-weir" "$policy"; fi
}

# without PACKAGE: the bench alone wants it and does without it.
left_out=' '
without() {
	say "no package of $1 here that is new enough: weir bench says what it leaves out"
	left_out+="$1 "
}

# install_for_bench PACKAGE WHY: what the package sources have of it.
install_for_bench() {
	local package packages=("$1")
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	[ "$1" != tomcat10-common ] || packages+=(tomcat11-common tomcat9-common)
	for package in "${packages[@]}"; do
		[ -n "$(candidate "$package")" ] || continue
		if [ "$package" = nginx-light ]; then
			install_quietly nginx-light "$2" nginx
		else # without a service
			say "installing $package: $2"
			apt_install "$package"
		fi
		return
	done
	without "$1"
}

# check_haproxy: says what to do if no package source has one that is new enough.
check_haproxy() {
	local version
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	version=$(candidate haproxy)
	if [ -n "$version" ] && at_least "${version%%[-~+]*}" 2.6; then return; fi
	if [[ " ${groups[*]} " != *" test "* && " ${groups[*]} " != *" edge "* ]]; then
		without haproxy
		return
	fi
	die "HAProxy 2.6 or newer is needed, and this machine's package sources have ${version:-none}: on Ubuntu 22.04 run" \
		"sudo add-apt-repository ppa:vbernat/haproxy-2.8 (of the package software-properties-common) and then this again;" \
		"Debian 12 and Ubuntu 24.04 have it. make demo does without"
}

install_docker() {
	local packages=(docker.io) unit
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	# Newer releases have the client in a package of its own.
	if [ -n "$(candidate docker-cli)" ]; then packages+=(docker-cli); fi
	say "installing ${packages[*]} without starting it: for a container engine of the tests' own"
	hold_services
	apt_install "${packages[@]}"
	release_services
	if has systemctl; then
		for unit in docker.service docker.socket containerd.service; do
			as_root systemctl disable --quiet "$unit" >/dev/null 2>&1 || true
		done
		say "Docker's service stays off; to use it yourself: systemctl enable --now docker"
	fi
}

# install_quietly PACKAGE WHY [UNIT...]: a package whose services are not wanted, that of
# its name and others.
install_quietly() {
	local unit
	say "installing $1 without starting it: $2"
	hold_services
	apt_install "$1"
	release_services
	has systemctl || return 0
	for unit in "$1" "${@:3}"; do
		as_root systemctl disable --quiet "$unit.service" >/dev/null 2>&1 || true
	done
}

# install_qemu PACKAGE...: does what it can; tests say what they lack.
install_qemu() {
	local release version
	"$apt_is_fresh" || apt_update || die "cannot read the package lists"
	version=$(candidate "$1")
	if [ -n "$version" ] && at_least "${version%%[~+]*}" 10.0; then
		say "installing $* $version: to boot kernels"
		apt_install "$@"
		return
	fi
	release=$(os_release VERSION_CODENAME)-backports
	if [ "$(os_release ID)" = debian ] && (add_backports "$release" "this release's QEMU is too old"); then
		version=$(candidate "$1" "$release")
	fi
	if [ -z "$version" ] || ! at_least "${version%%[~+]*}" 10.0; then
		say "no package of QEMU 10.0 or newer: the suite vm will be skipped"
		return
	fi
	say "installing $* $version from backports: to boot kernels"
	apt_install -t "$release" "$@"
}

# --- compare, install, compare again ------------------------------------------

groups=("$@")
[ ${#groups[@]} -gt 0 ] || groups=(build bpf test lint demo edge bench vm)
for group in "${groups[@]}"; do
	case $group in
	build | bpf | test | lint | demo | edge | bench | vm) ;;
	*) die "unknown group $group (build, bpf, test, lint, demo, edge, bench, vm)" ;;
	esac
done

# missing: PACKAGE and WHY of each unmet need of the chosen groups.
missing() {
	local entry group package why check seen=' '
	for entry in "${needs[@]}"; do
		IFS=$'\t' read -r group package why check <<<"$entry"
		[[ " ${groups[*]} " == *" $group "* && $seen != *" $package "* ]] || continue
		# shellcheck disable=SC2086 # CHECK is a command with arguments
		$check && continue
		seen+="$package "
		printf '%s\t%s\n' "$package" "$why"
	done
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0
if ! has apt-get; then
	printf 'deps: missing: %s\n' "$lacking" >&2
	die "no apt-get on this machine: install these by hand"
fi

if grep -q '^haproxy' <<<"$lacking"; then check_haproxy; fi
plain=() qemu=() for_bench=()
while IFS=$'\t' read -r package why; do
	case $package in
	golang-go | docker.io)
		if [ "$package" = docker.io ] && has dockerd; then
			die "the Docker on this machine is older than 20.10: upgrade it, it is not touched here"
		fi
		;;
	prometheus | haproxy | openvswitch-switch) ;;
	nginx-light | default-jre-headless | tomcat10-common | python3-os-ken) for_bench+=("$package"$'\t'"$why") ;;
	qemu-*) qemu+=("$package") ;;
	*)
		say "installing $package: $why"
		plain+=("$package")
		;;
	esac
done <<<"$lacking"

[ ${#plain[@]} -eq 0 ] || apt_install "${plain[@]}"
if grep -q '^golang-go' <<<"$lacking"; then install_go; fi
if grep -q '^docker.io' <<<"$lacking"; then install_docker; fi
if grep -q '^prometheus' <<<"$lacking"; then install_quietly prometheus 'to check alert rules and metrics (promtool)'; fi
if grep -q '^haproxy' <<<"$lacking" && [[ $left_out != *' haproxy '* ]]; then
	install_quietly haproxy 'for the service proxy of weir-edge'
fi
if grep -q '^openvswitch-switch' <<<"$lacking"; then
	install_quietly openvswitch-switch 'for a real OpenFlow switch' ovs-vswitchd ovsdb-server
fi
[ ${#qemu[@]} -eq 0 ] || install_qemu "${qemu[@]}"
for entry in ${for_bench[@]+"${for_bench[@]}"}; do
	install_for_bench "${entry%%$'\t'*}" "${entry#*$'\t'}"
done

hash -r
# What could not be installed and is not needed has been said.
lacking=$(missing | while IFS=$'\t' read -r package why; do
	[[ $package == qemu-* || $left_out == *" $package "* ]] || printf '%s\t%s\n' "$package" "$why"
done)
[ -z "$lacking" ] || die "still missing or too old after installation: $(cut -f1 <<<"$lacking" | tr '\n' ' ')"
say "done"
