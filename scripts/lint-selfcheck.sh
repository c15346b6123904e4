#!/bin/bash
# Checks that the lint rules catch what they are there for.
#
# Makes a small module of Weir's name with one planted violation per rule, and
# with the same import or call in a place where it is allowed. Every violation
# must be reported by the right linter, and nothing else. Needs no network:
# other modules are replaced by empty ones.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
module=$(awk '$1 == "module" { print $2 }' "$root/go.mod")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$root/.golangci.yml" .

{
	echo "module $module"
	awk '$1 == "go"' "$root/go.mod"
} >go.mod

# stub MODULE SUBDIRECTORY CONTENT: a replaced module with one package.
stub() {
	mkdir -p "stubs/$1/$2"
	printf 'module %s\n' "$1" >"stubs/$1/go.mod"
	printf '// Package stub stands in for a real one.\npackage %s\n%s\n' \
		"$(basename "$1${2:+/$2}")" "$3" >"stubs/$1/$2/stub.go"
	printf 'require %s v0.0.0\nreplace %s => ./stubs/%s\n' "$1" "$1" "$1" >>go.mod
}
stub github.com/cilium/ebpf '' ''
stub github.com/vishvananda/netlink '' ''
stub github.com/vishvananda/netns '' ''
stub github.com/moby/moby/client '' ''
stub golang.org/x/sys unix 'const AF_NETLINK = 16'

# plant FILE TEXT: a Go file whose package is its directory's name.
plant() {
	local dir=${1%/*} package
	package=${dir##*/}
	case $dir in cmd/* | tools/*) package=main ;; esac
	mkdir -p "$dir"
	printf '// Package %s has planted lines.\npackage %s\n\n%s\n' "$package" "$package" "$2" >"$1"
}

: >expected
# bad FILE LINTER TEXT: LINTER must report FILE.
bad() { plant "$1" "$3" && echo "$1 $2" >>expected; }
# good FILE TEXT: nothing may be reported.
good() { plant "$1" "$2"; }

good internal/datapath/kernel/link.go 'import (
	_ "github.com/cilium/ebpf"         // planted
	_ "github.com/vishvananda/netlink" // planted
	_ "github.com/vishvananda/netns"   // planted

	"golang.org/x/sys/unix"
)

// Family is allowed here.
const Family = unix.AF_NETLINK'

for package in api/v1 internal/share/policy internal/share/alloc internal/share/plan internal/share/sched internal/share/demand internal/share/explain internal/agent/metrics internal/agent/stats internal/lab/advise internal/apps internal/apps/flow internal/lab/train internal/lab/model internal/lab/report internal/lab/bench/claim internal/sdn/openflow internal/sdn/core internal/sdn/topology internal/sdn/qos internal/edge/spec internal/edge/engine internal/edge/sim internal/edge/minimums internal/edge/metrics internal/front/exposition; do
	name=${package//\//_}
	bad "$package/os_$name.go" depguard 'import _ "os" // planted'
	bad "$package/net_$name.go" depguard 'import _ "net" // planted'
	bad "$package/http_$name.go" depguard 'import _ "net/http" // planted'
	bad "$package/syscall_$name.go" depguard 'import _ "syscall" // planted'
	bad "$package/kernel_$name.go" depguard "import _ \"$module/internal/datapath/kernel\" // planted"
	bad "$package/ebpf_$name.go" depguard 'import _ "github.com/cilium/ebpf" // planted'
	bad "$package/netlink_$name.go" depguard 'import _ "github.com/vishvananda/netlink" // planted'
	bad "$package/moby_$name.go" depguard 'import _ "github.com/moby/moby/client" // planted'
	good "$package/golden_test.go" 'import _ "os" // planted'
done
good internal/front/config/file.go 'import _ "os" // planted'
bad internal/front/config/exec.go depguard 'import _ "os/exec" // planted'
bad internal/front/config/kernel.go depguard "import _ \"$module/internal/datapath/kernel\" // planted"

bad internal/agent/loop/netlink.go depguard 'import _ "github.com/vishvananda/netlink" // planted'
bad internal/agent/loop/netns.go depguard 'import _ "github.com/vishvananda/netns" // planted'
bad internal/agent/loop/raw.go forbidigo 'import "golang.org/x/sys/unix"

// Family is not allowed here.
const Family = unix.AF_NETLINK'
bad internal/agent/server/raw.go forbidigo 'import "syscall"

// Family is not allowed here.
const Family = syscall.AF_NETLINK'
bad internal/agent/loop/ebpf.go depguard 'import _ "github.com/cilium/ebpf" // planted'
for package in testbed bench meter traffic; do
	good "internal/lab/$package/netlink.go" 'import _ "github.com/vishvananda/netlink" // planted'
done
good test/netns/netlink_test.go 'import _ "github.com/vishvananda/netlink" // planted'
good internal/datapath/identity/ebpf.go 'import _ "github.com/cilium/ebpf" // planted'
good internal/lab/meter/ebpf.go 'import _ "github.com/cilium/ebpf" // planted'

bad internal/agent/loop/lab.go depguard "import _ \"$module/internal/lab/meter\" // planted"
bad internal/agent/cli/bench.go depguard "import _ \"$module/internal/lab/meter\" // planted"
good internal/lab/bench/meter.go "import _ \"$module/internal/lab/meter\" // planted"

good internal/agent/uplink/uplink.go 'import _ "os" // planted'
good internal/datapath/htb/htb.go 'import _ "os" // planted'
for package in agent/loop agent/server agent/cli agent/uplink datapath/identity datapath/htb datapath/kernel; do
	bad "internal/edge/server/${package//\//_}.go" depguard "import _ \"$module/internal/$package\" // planted"
done
for place in internal/share/alloc internal/datapath/identity internal/sdn/cli; do
	bad "$place/agent.go" depguard "import _ \"$module/internal/agent/loop\" // planted"
done
good internal/edge/server/web.go "import _ \"$module/internal/front/web\" // planted"
good internal/front/web/web.go 'import _ "os" // planted'

bad internal/agent/loop/exec.go depguard 'import _ "os/exec" // planted'
bad internal/agent/cli/exec.go depguard 'import _ "os/exec" // planted'
good internal/agent/cli/nodes.go 'import _ "os/exec" // planted'
good internal/lab/cli/demo_run.go 'import _ "os/exec" // planted'
good internal/lab/testbed/exec.go 'import _ "os/exec" // planted'
good internal/agent/loop/exec_test.go 'import _ "os/exec" // planted'

bad internal/agent/loop/exit.go forbidigo 'import "os"

// Stop ends the process.
func Stop() { os.Exit(1) }'
bad internal/agent/loop/fatal.go forbidigo 'import "log"

// Complain ends the process.
func Complain() { log.Fatalln("no") }'
bad internal/agent/loop/init.go gochecknoinits 'func init() {}'
good cmd/weir/main.go 'import "os"

func main() { os.Exit(1) }'

bad internal/agent/loop/nolint.go nolintlint 'var _ = 1 //nolint'
bad internal/agent/loop/exported.go revive 'func Undocumented() {}'
bad internal/agent/loop/errors.go errorlint 'import "io"

func isEnd(err error) bool { return err == io.EOF }

var _ = isEnd'

status=0
GOFLAGS=-mod=mod GOPROXY=off "$root/scripts/with-go.sh" "$root/bin/golangci-lint" run \
	--output.text.path=stdout --output.text.print-issued-lines=false \
	--output.text.colors=false --show-stats=false --allow-parallel-runners ./... >report 2>errors || status=$?
# Lines are FILE:LINE:COLUMN: TEXT (LINTER).
sed -nE 's/^([^:]+):[0-9]+:([0-9]+:)? .*\(([a-z]+)\)$/\1 \3/p' report | LC_ALL=C sort -u >reported
LC_ALL=C sort -u -o expected expected

missed=$(LC_ALL=C comm -23 expected reported)
wrong=$(LC_ALL=C comm -13 expected reported)
if [ "$status" -ne 1 ] || [ -n "$missed$wrong" ]; then
	[ -z "$missed" ] || printf 'planted and not caught: %s\n' "$missed"
	[ -z "$wrong" ] || printf 'caught though allowed: %s\n' "$wrong"
	echo "golangci-lint ended with $status; it said:"
	cat errors report
	exit 1
fi
echo "$(wc -l <expected) planted violations caught, nothing else reported"

# The rules of commits (scripts/lint-commits.sh), in a repository of its own.
mkdir -p history/scripts
cp "$root/scripts/lint-commits.sh" history/scripts/
cd history
commit() { git -c user.name=planted -c user.email=planted@localhost commit -q --allow-empty "$@"; }
git init -q .
commit -m "the rules begin"
since=$(git rev-parse HEAD)
commit -m "a: keep the rules" -m "Why: it may."
commit -m "a, b/c: keep them, too" -m "Why: it may."
SINCE=$since scripts/lint-commits.sh
commit -m "no package" -m "Why."
commit -m "a: say more than sixty characters, which no reader sees in one line" -m "Why."
commit -m "a: wip" -m "Why."
commit -m "a: give no reason"
git checkout -q -b side "$since" && commit -m "a: go aside" -m "Why." && git checkout -q -
git -c user.name=planted -c user.email=planted@localhost merge -q --no-ff -m "a: merge" -m "Why." side
said=$(SINCE=$since scripts/lint-commits.sh) && echo "no rule of commits caught anything" && exit 1
for rule in "no package: the subject is not" "characters, and may have 60" "a: wip: wip" "a: give no reason: it has no body" "a: merge: it is a merge"; do
	grep -qF "$rule" <<<"$said" || { echo "planted in a commit and not caught: $rule; it said $said" && exit 1; }
done
[ "$(wc -l <<<"$said")" -eq 5 ] || { echo "caught though allowed: $said" && exit 1; }
echo "5 planted commits caught, nothing else reported"
