#!/bin/bash
# Runs test suites and reports on all of them together.
#
#   scripts/test.sh [SUITE...]     default: the gate, which is the first part of the list
#   scripts/test.sh all            every suite of both parts
#
#   unit        tests that need no root, with the race detector, and the pure packages' coverage
#   web         the dashboard in a browser (tests tagged web)
#   netns       tests tagged netns: root, networks of namespaces
#   docker      tests tagged docker: root, a container engine of their own
#   vm          what differs between kernels, on the oldest and the newest, in virtual machines
#   deb         tests tagged deb: root, the packages built, installed and removed
#   generated   generated files are what their sources generate
#   lint        golangci-lint with the architecture rules, shellcheck, commits, vet for 32 bits
#   rules       the linter's rules still catch what they are there for
#   dra         weir-dra, a module of its own: tests that need no cluster, the linter
#
#   machines    all kernels, with all that is run on any, in place of vm
#   release     tests tagged release: root, reproducible builds, a Debian booted and upgraded
#   cluster     tests tagged cluster: root, a node of Kubernetes with its control plane; 500 nodes without kubelet
#   cross       a build for 64-bit ARM
#
# for what depends on how fast helpers are:
#
#   pauses      netns and docker WEIR_TEST_ROUNDS times (10), helpers stopped at random (tools/pauses)
#
# and, for `make check`, which is for daily work:
#
#   units       unit without the race detector and coverage
#   quick       one pass through the real kernel, of the suite netns
#
# Suites in namespaces and engines measure shares: each runs alone, and mostly waits. What only
# computes runs beside them, in the idle time of the processors (scripts/idle.sh): lint, rules,
# generated, pure packages' tests, what the other suites compile, and virtual machines, which count
# instructions, so that a busy machine changes no result. Tests with the race detector and those in
# a browser have deadlines: they come last, compiled by then. Without a cgroup for idle time, suites come one
# after the other, and virtual machines last, beside the others that only compute.
#
# Of each package with a tag, go test runs first, one at a time, the tests that take a processor
# or measure how long something takes, and then, some at a time (lanes), those that call t.Parallel.
#
# A failed suite stops no other. The last line is "N passed, N failed, N skipped"; above it are
# the skipped tests and why. The exit status is 1 when anything failed or nothing ran, and 3 when
# the machine was too busy to judge: more than 3 % of a suite's checks of shares were skipped.
# Root suites are compiled as the caller and run through sudo where the caller is not root;
# without sudo they are reported as skipped.
#
# After a root suite the machine must look as before: scripts/leakcheck.sh. What
# was left is removed, also when a suite is interrupted.
#
# For tests: WEIR_BIN and WEIR_EDGE_BIN are the programs built from this tree.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [ -z "${WEIR_WITH_GO:-}" ]; then
	export WEIR_WITH_GO=1
	exec scripts/with-go.sh scripts/test.sh "$@"
fi

# Tests of the suites netns and docker that the gate leaves out: those that wait for minutes,
# attacks in an overlay network that meet the same program at the same device as in a bridge's,
# and long ones of the laboratory with a shorter one in the gate: two interrupted demos beside
# `weir demo`, a cut page of claims beside cut sections, a bench in each mode beside one in bridges.
slow=
case "$*" in
'')
	suites=(unit web netns docker vm deb generated lint rules dra)
	slow='^TestDemoEdgeInterrupted$|^TestDemoSiteInterrupted$|^TestCutPageGoesOn$|^TestCNTCInEveryMode$|'
	slow+='^TestSwarmLeaderGoes$|^TestIsolation$/^overlay$/^(socket_options|BPF_before_the_tap|other_addresses|.*_own_qdisc|routed_.*|64_connections)$'
	;;
all)
	suites=(unit web netns docker machines cluster deb release generated lint cross rules dra)
	export WEIR_VOICE_DRAWS=${WEIR_VOICE_DRAWS:-20}
	;;
*) suites=("$@") ;;
esac
for suite in "${suites[@]}"; do
	case $suite in
	unit | units | web | netns | quick | docker | vm | machines | cluster | deb | release | generated | lint | cross | rules | dra | pauses) ;;
	*) echo "unknown suite $suite" >&2 && exit 2 ;;
	esac
done

export CGO_ENABLED=0
export WEIR_BIN=$root/bin/weir WEIR_EDGE_BIN=$root/bin/weir-edge
# How many tests that mostly wait run at a time.
lanes=${WEIR_TEST_LANES:-2}
timeout=${WEIR_TEST_TIMEOUT:-20m}
vm_timeout=${WEIR_TEST_TIMEOUT:-5h} # others come first; each machine has its bounds
records=$(mktemp -d)
summary=$root/bin/testsummary

# The running suite: its process group, and for root suites its name in
# WEIR_TEST_RUN and a file of how the machine looked before.
job='' run_id='' before=''
# beside is the process of the suites that run beside others, and idle its cgroup
# (scripts/idle.sh), if any.
beside='' idle=''

# stop PROCESS: ends a process group and waits for it.
stop() {
	[ -n "$1" ] || return 0
	kill -TERM -- "-$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

# finish: the report, also when this script itself breaks off.
finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM
	stop "$job"
	stop "$beside" # it ends its own job
	if [ -n "$idle" ]; then scripts/as-root.sh scripts/idle.sh remove "$idle" || status=1; fi
	remove_rest
	if [ "$status" -ne 0 ]; then note harness fail "scripts/test.sh ended with status $status"; fi
	"$summary" report -dir "$records" || status=$?
	rm -rf "$records"
	exit "$status"
}

say() { printf '\n=== %s\n' "$*"; }

# note SUITE pass|fail|skip [REASON [LOG [SECONDS]]]: records a check; LOG is a file with its output.
note() {
	"$summary" check -dir "$records" -suite "$1" -result "$2" -reason "${3:-}" -log "${4:-}" -took "${5:-0}s" || true
}

# check SUITE REASON COMMAND...: one check; exit status 77 is "skipped" and its
# last line says why.
check() {
	local suite=$1 reason=$2 start=$SECONDS status=0 log=$records/log.$1
	shift 2
	"$@" 2>&1 </dev/null | tee "$log" || status=$?
	case $status in
	0) note "$suite" pass '' '' $((SECONDS - start)) ;;
	77) note "$suite" skip "$(tail -n 1 "$log")" ;;
	*) note "$suite" fail "$reason" "$log" ;;
	esac
}

# run_tests SUITE FLAG...: runs go test, without the vet that is lint's, and records its events. In a
# process group of its own: a signal to this script must not wait for it.
run_tests() {
	local suite=$1 statuses file
	file=$(mktemp "$records/statuses.XXXXXX")
	shift
	set -m
	{
		set +e
		go test -json -vet=off "$@" </dev/null | "$summary" run -dir "$records" -suite "$suite"
		echo "${PIPESTATUS[@]}" >"$file"
	} &
	set +m
	job=$!
	wait "$job"
	job=
	read -ra statuses <"$file"
	# What go test fails of without an event, such as a broken go.mod.
	if [ "${statuses[0]}" -ne 0 ] && [ "${statuses[1]}" -eq 0 ]; then
		note "$suite" fail "go test failed outside of the tests"
	fi
}

# tagged_files TAG: the files with tests that are only compiled with TAG.
tagged_files() { grep -rlE --include='*_test.go' "^//go:build .*\b$1\b" api cmd internal packaging test tools; }

# packages_of FILE...: their packages.
packages_of() { printf './%s\n' "${@%/*}" | LC_ALL=C sort -u; }

# run_tagged SUITE TAG FLAG...: run_tests of the tests in files that are only compiled with
# TAG. Packages are compiled and run one after the other.
run_tagged() {
	local suite=$1 tag=$2 list files packages names
	shift 2
	list=$(tagged_files "$tag") # on its own, so that a failure ends the run
	mapfile -t files <<<"$list"
	mapfile -t packages < <(packages_of "${files[@]}")
	names=$(grep -hoE '^func Test[A-Z0-9_]\w*' "${files[@]}" | cut -c 6- | grep -vx TestMain | LC_ALL=C sort -u | paste -sd '|')
	run_tests "$suite" -ldflags '-s -w' -tags "$tag" -count=1 -p 1 -parallel "$lanes" -timeout "$timeout" -run "^($names)\$" "$@" "${packages[@]}"
}

# remove_rest: removes what a root suite left behind.
remove_rest() {
	[ -n "$before" ] || return 0
	# Not as a part of that run, which this may be called in the middle of.
	env -u WEIR_TEST_RUN scripts/as-root.sh scripts/leakcheck.sh remove "$before" "$run_id" 9>&- || true
	rm -f "$before"
	before=
}

root_ready=
become_root() {
	if [ -z "$root_ready" ]; then
		root_ready=no
		if scripts/as-root.sh true 2>/dev/null; then
			root_ready=yes
		elif command -v sudo >/dev/null && { : </dev/tty; } 2>/dev/null && sudo -v; then
			root_ready=yes
		fi
	fi
	[ "$root_ready" = yes ]
}

# root_suite SUITE [FLAG...]: netns, docker, cluster, deb or release; or quick, which is of netns
root_suite() {
	local suite=$1 tag=$1 leaks
	shift
	say "$suite: tests that need root"
	if ! become_root; then
		note "$suite" skip "not root, and sudo does not work without a password here"
		return
	fi
	if [ "$suite" = quick ]; then
		tag=netns
		set -- -run '^(TestShares|TestDown)$/^(weight,_minimum_and_maximum)$'
	fi
	if [ -n "$slow" ]; then set -- -skip "$slow" "$@"; fi
	# The suites use the machine's network: one run at a time.
	exec 9</run
	flock -n 9 || { echo "waiting for another run to end" && flock 9; }
	before=$(mktemp) run_id=$$.$suite.$RANDOM
	scripts/as-root.sh scripts/leakcheck.sh snapshot >"$before" 9>&-
	WEIR_TEST_RUN=$run_id run_tagged "$suite" "$tag" -exec "$root/scripts/as-root.sh" "$@" 9>&-
	if leaks=$(scripts/as-root.sh scripts/leakcheck.sh compare "$before" "$run_id" 9>&-); then
		note "$suite" pass
	else
		printf '%s\n' "$leaks"
		while IFS= read -r leak; do note "$suite" fail "$leak"; done <<<"$leaks"
	fi
	remove_rest
	exec 9>&-
}

# vm_suite SUITE: virtual machines need no root, and nothing of this machine but time. Their
# disks go with all else of this run, also when it is interrupted.
vm_suite() {
	say "$1: tests on other kernels"
	: >"$records/kernels"
	mkdir "$records/machines"
	TMPDIR=$records/machines WEIR_VM_RECORD=$records/kernels WEIR_VM_SUITE=$1 run_tests "$1" \
		-timeout "$vm_timeout" -tags vm -count=1 -run '^TestMachines$' ./test/vm
	cat "$records/kernels"
}

# pure_suite: the part of unit in packages that start no goroutines. The race detector would make
# their arithmetic ten times slower.
pure_suite() {
	say "unit: tests of pure packages, and their coverage"
	mkdir -p coverage
	local list pure
	list=$(scripts/cover.sh list)
	mapfile -t pure <<<"$list"
	run_tests unit -timeout "$timeout" -coverprofile="$root/coverage/unit.out" "${pure[@]}"
	check cover "coverage is too low" scripts/cover.sh coverage/unit.out
}

unit_suite() {
	run_suites pure
	say "unit: tests that need no root, with the race detector"
	local pure list others
	pure=$(scripts/cover.sh list)
	list=$(go list ./... | grep -vxF "$pure")
	mapfile -t others <<<"$list"
	if command -v gcc >/dev/null; then
		CGO_ENABLED=1 run_tests unit -timeout "$timeout" -race "${others[@]}"
	else
		note unit skip "the race detector needs gcc: the tests run without it"
		run_tests unit -timeout "$timeout" "${others[@]}"
	fi
}

# compile SUITE...: compiles the packages that suites test, so that they find them compiled. What
# does not build, they report.
compile() {
	local suite files packages
	for suite in "$@"; do
		case $suite in
		unit) CGO_ENABLED=1 go list -race -test -export -deps ./... ;;
		web | docker | cluster | deb | release)
			mapfile -t files < <(tagged_files "$suite")
			mapfile -t packages < <(packages_of "${files[@]}")
			go list -tags "$suite" -test -export -deps "${packages[@]}"
			;;
		esac
	done >/dev/null 2>&1 || true
}

# run_suite SUITE
run_suite() {
	case $1 in
	unit) unit_suite ;;
	pure) pure_suite ;;
	compile) compile "${alone[@]}" "${packages[@]}" "${timed[@]}" ;;
	units)
		say "units: tests that need no root, without the race detector"
		run_tests units -timeout "$timeout" ./...
		;;
	netns | quick | docker | cluster | deb | release) root_suite "$1" ;;
	web)
		say "web: the dashboard in a browser"
		run_tagged web web
		;;
	vm | machines) vm_suite "$1" ;;
	generated)
		say "generated: files are what their sources generate"
		check generated "generated files differ from their sources" scripts/check-generated.sh
		;;
	lint)
		say "lint"
		check lint "golangci-lint, shellcheck, go vet for 32 bits or a rule of commits complains" make --no-print-directory --keep-going lint
		;;
	pauses)
		go build -o bin/pauses ./tools/pauses
		for ((round = 1; round <= ${WEIR_TEST_ROUNDS:-10}; round++)); do
			root_suite netns -exec "$root/scripts/as-root.sh $root/bin/pauses"
			root_suite docker -exec "$root/scripts/as-root.sh $root/bin/pauses"
		done
		;;
	cross)
		say "cross: a build for 64-bit ARM"
		check cross "it does not build" env GOARCH=arm64 go build ./...
		;;
	dra)
		say "dra: weir-dra without a cluster"
		check dra "its tests or its linter complain" make --no-print-directory test-dra
		;;
	rules)
		say "rules: the linter catches what is planted"
		check rules "a rule misses what it is there for" make --no-print-directory lint-selfcheck
		;;
	esac
}

# run_suites SUITE...: runs those that have not begun yet.
run_suites() {
	local suite
	for suite in "$@"; do
		if mkdir "$records/begun.$suite" 2>/dev/null; then run_suite "$suite"; fi
	done
}

# make_idle: makes the cgroup for what runs beside others, if it can.
make_idle() {
	if ! become_root; then
		echo "vm runs after the others: not root, and sudo does not work without a password here"
	elif ! idle=$(scripts/as-root.sh scripts/idle.sh make $$ 2>"$records/idle"); then
		echo "vm runs after the others: $(tail -n 1 "$records/idle")"
	fi
	[ -n "$idle" ]
}

# start_beside SUITE...: runs suites beside others; their output comes at the end.
start_beside() {
	set -m
	(
		# shellcheck disable=SC2154 # job is set while one runs
		trap '[ -z "$job" ] || { kill -TERM -- "-$job"; wait "$job"; } 2>/dev/null; remove_rest; exit 143' TERM
		if [ -n "$idle" ]; then scripts/as-root.sh scripts/idle.sh enter "$idle" "$BASHPID"; fi
		run_suites "$@"
	) >"$records/beside" 2>&1 &
	set +m
	beside=$!
}

# join_beside: waits for them.
join_beside() {
	[ -n "$beside" ] || return 0
	say "waiting for what runs beside"
	wait "$beside" || note harness fail "what runs beside ended with status $?" "$records/beside"
	beside=
	cat "$records/beside"
}

if ! go build -o "$summary" ./tools/testsummary; then
	echo "cannot build the summary program" >&2
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "build"
check build "weir does not build" make --no-print-directory build
# Tests say what they lack where its modules are not to be had.
case " ${suites[*]} " in *" docker "* | *" cluster "*) make --no-print-directory bin/kubernetes || true ;; esac
case " ${suites[*]} " in *" cluster "*)
	make --no-print-directory bin/controlplane bin/helm || true
	check build "weir-dra does not build" make --no-print-directory bin/weir-dra bin/fleet
	;;
esac

vm=() alone=() packages=() timed=() last=()
for suite in "${suites[@]}"; do
	case $suite in
	vm | machines) vm=("$suite") ;;
	deb | release) packages+=("$suite") ;;
	unit) timed+=("$suite") last+=(pure) ;;
	web) timed+=("$suite") ;;
	generated | lint | cross | rules | dra) last+=("$suite") ;;
	*) alone+=("$suite") ;;
	esac
done
if [ ${#vm[@]} -eq 0 ] || [ ${#suites[@]} -eq 1 ]; then
	run_suites "${suites[@]}"
elif make_idle; then
	start_beside compile "${last[@]}" "${vm[@]}"
	# The side that is done first begins what the other has not.
	run_suites "${alone[@]}" "${packages[@]}" "${timed[@]}" "${last[@]}"
else
	run_suites "${timed[@]}" "${alone[@]}"
	start_beside "${packages[@]}" "${last[@]}"
	run_suites "${vm[@]}"
fi
join_beside
