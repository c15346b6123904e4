#!/bin/bash
# Runs test suites and reports on all of them together.
#
#   scripts/test.sh [SUITE...]     default: all of them
#
#   unit        tests that need no root, with the race detector
#   cover       the pure packages' coverage
#   netns       tests tagged netns: root, networks of namespaces
#   docker      tests tagged docker: root, a container engine of their own
#   web         the dashboard in a browser (tests tagged web)
#   vm          netns tests on other kernels, in virtual machines
#   deb         tests tagged deb: root, what is released, built twice, installed and removed
#   generated   generated files are what their sources generate
#   lint        golangci-lint with the architecture rules, shellcheck, builds for ARM
#   rules       the linter's rules still catch what they are there for
#
# and, for `make check`, which is for daily work:
#
#   units       unit without the race detector
#   quick       one pass through the real kernel, of the suite netns
#
# The suite vm runs beside all others, from the start: its machines count instructions, so
# that nothing there depends on how busy this machine is. They take what the others leave
# of the processors (scripts/idle.sh), which is most: tests in networks of namespaces wait
# most of the time. Where that is not to be had, vm comes after the suites that measure
# something, at the same time as those that do not.
#
# Of these, deb, cover, generated, lint and rules come last. Suites in namespaces and
# engines run alone but for vm: they measure shares. Those of their tests with
# //weir:beside before them run two at a time; what takes a processor, or measures how
# long something takes, runs by itself after these. But for vm's, nothing is compiled
# meanwhile.
#
# Every suite runs whatever became of the ones before. The last line is
# "N passed, N failed, N skipped"; above it is what was skipped and why. Fails
# when anything failed or when nothing ran. Root suites are compiled as the
# caller and run through sudo where the caller is not root; where that is not
# possible they are reported as skipped.
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

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(unit web netns docker vm deb cover generated lint rules)
for suite in "${suites[@]}"; do
	case $suite in
	unit | units | cover | web | netns | quick | docker | vm | deb | generated | lint | rules) ;;
	*) echo "unknown suite $suite" >&2 && exit 2 ;;
	esac
done

export CGO_ENABLED=0
export WEIR_BIN=$root/bin/weir WEIR_EDGE_BIN=$root/bin/weir-edge
timeout=${WEIR_TEST_TIMEOUT:-20m}
vm_timeout=${WEIR_TEST_TIMEOUT:-3h} # others come first; each machine has its bounds
records=$(mktemp -d)
module=$(go list -m)
summary=$root/bin/testsummary

# The suite that runs: its process group, and for root suites its name in
# WEIR_TEST_RUN and how the machine looked before.
job='' run_id='' before=''
# beside is the process of the suites that run beside others, and idle the group
# (scripts/idle.sh) that it is in, if any.
beside='' idle=''

# finish: the report, also when this script itself breaks off.
finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM
	if [ -n "$job" ]; then
		kill -TERM -- "-$job" 2>/dev/null || true
		wait "$job" 2>/dev/null || true
	fi
	if [ -n "$beside" ]; then # it ends its own job
		kill -TERM -- "-$beside" 2>/dev/null || true
		wait "$beside" 2>/dev/null || true
	fi
	if [ -n "$idle" ]; then scripts/as-root.sh scripts/idle.sh remove "$idle" || status=1; fi
	remove_rest
	if [ "$status" -ne 0 ]; then fail harness "scripts/test.sh ended with status $status"; fi
	"$summary" report -dir "$records" || status=1
	rm -rf "$records"
	exit "$status"
}

say() { printf '\n=== %s\n' "$*"; }

pass() { "$summary" check -dir "$records" -suite "$1" -result pass -took "${2:-0}s"; }
# fail SUITE REASON [FILE]: FILE is what it printed.
fail() { "$summary" check -dir "$records" -suite "$1" -result fail -reason "$2" ${3:+-log "$3"} || true; }
skip() { "$summary" check -dir "$records" -suite "$1" -result skip -reason "$2"; }

# check SUITE REASON COMMAND...: one check; exit status 77 is "skipped" and its
# last line says why.
check() {
	local suite=$1 reason=$2 start=$SECONDS status=0 log=$records/log.$1
	shift 2
	"$@" 2>&1 </dev/null | tee "$log" || status=$?
	case $status in
	0) pass "$suite" $((SECONDS - start)) ;;
	77) skip "$suite" "$(tail -n 1 "$log")" ;;
	*) fail "$suite" "$reason" "$log" ;;
	esac
}

# recorded SUITE COMMAND...: a command that prints the events of go test. In a
# process group of its own: a signal to this script must not wait for it.
recorded() {
	local suite=$1 statuses
	local file=$records/statuses.$suite
	shift
	set -m
	{
		set +e
		"$@" </dev/null | "$summary" run -dir "$records" -suite "$suite"
		echo "${PIPESTATUS[@]}" >"$file"
	} &
	set +m
	job=$!
	wait "$job"
	job=
	read -ra statuses <"$file"
	# What go test fails of without an event, such as a broken go.mod.
	if [ "${statuses[0]}" -ne 0 ] && [ "${statuses[1]}" -eq 0 ]; then
		fail "$suite" "go test failed outside of the tests"
	fi
}

# remove_rest: what a root suite left behind.
remove_rest() {
	[ -n "$before" ] || return 0
	# Not as a part of that run, which this may be called in the middle of.
	env -u WEIR_TEST_RUN scripts/as-root.sh scripts/leakcheck.sh remove "$before" "$run_id" 9>&- || true
	rm -f "$before"
	before=
}

# tagged_tests TAG: "PACKAGE TEST beside" or "PACKAGE TEST alone" of the tests in files
# that are only compiled with TAG.
tagged_tests() {
	# shellcheck disable=SC2016 # a Go template
	local files='{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}'
	comm -13 <(go list -e -f "$files" ./... | LC_ALL=C sort -u) \
		<(go list -e -tags "$1" -f "$files" ./... | LC_ALL=C sort -u) |
		while read -r package file; do
			awk -v package="$package" '
				/^\/\/weir:beside$/ { how = "beside" }
				/^func Test[A-Za-z0-9_]*\(/ {
					sub(/\(.*/, "", $2)
					if ($2 != "TestMain") print package, $2, how ? how : "alone"
				}
				/^[^\/]/ { how = "" }' "$file"
		done
}

# quick_tests: as tagged_tests, what one pass through the kernel is: weights,
# minimums and maximums in force, and nothing left of them after weir down.
quick_tests() { printf '%s TestShares alone\n%s TestDown alone\n' "$module/test/netns"{,}; }
quick_subtests='/^(weight,_minimum_and_maximum)$'

# portions COUNT HOW: "PACKAGE NAME|NAME..." of those of tagged_tests that run HOW, a
# package's in so many portions, those with many tests first.
portions() {
	awk -v portions="$1" -v how="$2" '
		$3 == how {
			portion = $1 " " count[$1]++ % portions
			names[portion] = names[portion] (names[portion] ? "|" : "") $2
			size[portion]++
		}
		END { for (p in names) { split(p, part, " "); print size[p], part[1], names[p] } }' |
		LC_ALL=C sort -k 1,1nr -k 2 | cut -d ' ' -f 2-
}

# program_of PACKAGE: the file that its tests are compiled to.
program_of() {
	local folder=${1#"$module"/}
	echo "$compiled/${folder//\//-}.test"
}

# run_portion PACKAGE NAMES SUBTESTS [WRAPPER...]: runs what was compiled to the folder
# compiled, and prints its events as go test does.
run_portion() {
	local package=$1 names=$2 subtests=$3 program
	program=$(program_of "$package")
	shift 3
	[ -e "$program" ] || return 1
	cd "$root${package#"$module"}"
	go tool test2json -t -p "$package" "$@" "$program" -test.v=test2json -test.paniconexit0 \
		-test.timeout="$timeout" -test.run "^($names)\$$subtests" </dev/null
}

# run_portions LANES SUBTESTS [WRAPPER...]: portions, of which it reads a line each, so
# many at a time. What one prints is printed when it has ended: lines would mix.
run_portions() {
	local lanes=$1 running=0 failed=false package names
	shift
	while read -r package names; do
		if [ "$running" -ge "$lanes" ]; then
			wait -n || failed=true
			running=$((running - 1))
		fi
		(
			events=$(mktemp -p "$records") status=0
			(run_portion "$package" "$names" "$@") >"$events" 2>&1 8>&- || status=$?
			flock 8
			cat "$events"
			exit "$status"
		) 8>"$records/printing" &
		running=$((running + 1))
	done
	while [ "$running" -gt 0 ]; do
		wait -n || failed=true
		running=$((running - 1))
	done
	! "$failed"
}

# tagged_run TAG TESTS SUBTESTS [WRAPPER...]: the tests that tagged_tests found, in a
# wrapper that starts them; of those with subtests only what SUBTESTS selects, if it is
# not empty. First of all they are compiled.
tagged_run() {
	local tag=$1 tests=$2 subtests=$3 failed=false lanes=2 packages package names
	shift 3
	[ "$(nproc)" -gt 1 ] || lanes=1
	mapfile -t packages < <(cut -d ' ' -f 1 <<<"$tests" | LC_ALL=C sort -u)
	compiled=$(mktemp -d -p "$records")
	for package in "${packages[@]}"; do
		# What does not build says why in events.
		go test -c -ldflags "-s -w" -tags "$tag" -o "$(program_of "$package")" "$package" </dev/null ||
			go test -json -tags "$tag" -run '^$' "$package" </dev/null || failed=true
	done
	portions $((2 * lanes)) beside <<<"$tests" | run_portions "$lanes" "$subtests" "$@" || failed=true
	while read -r package names; do
		(run_portion "$package" "$names" "$subtests" "$@") || failed=true
	done < <(portions 1 alone <<<"$tests")
	rm -rf "$compiled"
	! "$failed"
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

# root_suite SUITE: netns, docker, deb, or quick, which is of netns
root_suite() {
	local suite=$1 tag=$1 tests leaks subtests=''
	say "$suite: tests that need root"
	if [ "$suite" = quick ]; then
		tag=netns tests=$(quick_tests) subtests=$quick_subtests
	else
		tests=$(tagged_tests "$tag")
	fi
	if [ -z "$tests" ]; then
		skip "$suite" "no test has this tag"
		return
	fi
	if ! become_root; then
		skip "$suite" "not root, and sudo does not work without a password here"
		return
	fi
	# The suites use the machine's network: one run at a time.
	exec 9</run
	flock -n 9 || { echo "waiting for another run to end" && flock 9; }
	before=$(mktemp) run_id=$$.$suite.$RANDOM
	scripts/as-root.sh scripts/leakcheck.sh snapshot >"$before" 9>&-
	WEIR_TEST_RUN=$run_id recorded "$suite" tagged_run "$tag" "$tests" "$subtests" "$root/scripts/as-root.sh" 9>&-
	if leaks=$(scripts/as-root.sh scripts/leakcheck.sh compare "$before" "$run_id" 9>&-); then
		pass "$suite"
	else
		printf '%s\n' "$leaks"
		while IFS= read -r leak; do fail "$suite" "$leak"; done <<<"$leaks"
	fi
	remove_rest
	exec 9>&-
}

# vm_suite: virtual machines need no root, and nothing of this machine but time. Their
# disks go with all else of this run, also when it is interrupted.
vm_suite() {
	say "vm: tests on other kernels"
	: >"$records/kernels"
	mkdir "$records/machines"
	TMPDIR=$records/machines WEIR_VM_RECORD=$records/kernels recorded vm \
		go test -json -timeout "$vm_timeout" -tags vm -count=1 -run '^TestMachines$' ./test/vm
	cat "$records/kernels"
}

unit_suite() {
	say "unit: tests that need no root"
	if command -v gcc >/dev/null; then
		CGO_ENABLED=1 recorded unit go test -json -timeout "$timeout" -race ./...
	else
		skip unit "the race detector needs gcc: the tests run without it"
		recorded unit go test -json -timeout "$timeout" ./...
	fi
}

# run_suite SUITE
run_suite() {
	case $1 in
	unit) unit_suite ;;
	units)
		say "units: tests that need no root, without the race detector"
		recorded units go test -json -timeout "$timeout" ./...
		;;
	cover)
		say "cover: statements of the pure packages that tests run"
		check cover "coverage is too low" scripts/cover.sh
		;;
	netns | quick | docker | deb) root_suite "$1" ;;
	web)
		say "web: the dashboard in a browser"
		recorded web tagged_run web "$(tagged_tests web)" ''
		;;
	vm) vm_suite ;;
	generated)
		say "generated: files are what their sources generate"
		check generated "generated files differ from their sources" scripts/check-generated.sh
		;;
	lint)
		say "lint"
		check lint "golangci-lint, shellcheck or a compiler for ARM complains" make --no-print-directory --keep-going lint
		;;
	rules)
		say "rules: the linter catches what is planted"
		check rules "a rule misses what it is there for" make --no-print-directory lint-selfcheck
		;;
	esac
}

# run_suites SUITE...: those that nobody has begun.
run_suites() {
	local suite
	for suite in "$@"; do
		if mkdir "$records/begun.$suite" 2>/dev/null; then run_suite "$suite"; fi
	done
}

# make_idle: makes the group for what runs beside others, if that is to be had.
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
	wait "$beside" || fail harness "what runs beside ended with status $?" "$records/beside"
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

vm=() alone=() deb=() last=()
for suite in "${suites[@]}"; do
	case $suite in
	vm) vm=(vm) ;;
	deb) deb=(deb) ;;
	cover | generated | lint | rules) last+=("$suite") ;;
	*) alone+=("$suite") ;;
	esac
done
if [ ${#vm[@]} -eq 0 ] || [ ${#suites[@]} -eq 1 ]; then
	run_suites "${suites[@]}"
elif make_idle; then
	# Who is done first begins the last ones.
	start_beside vm "${last[@]}"
	run_suites "${alone[@]}" "${deb[@]}" "${last[@]}"
else
	run_suites "${alone[@]}"
	start_beside "${deb[@]}" "${last[@]}"
	run_suites vm
fi
join_beside
