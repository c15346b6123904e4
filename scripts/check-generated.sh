#!/bin/bash
# Fails when a committed generated file is not what its sources generate.
#
# Generates everything again in a copy of the tree, so that the tree is left
# alone, and compares. The bytes of BPF objects depend on the compiler and the
# kernel headers: where those are not the ones that made the committed objects
# (tools/bpf-toolchain), the sources must still compile and everything else
# must still be the same, and the objects are reported as not compared (exit
# status 77).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# The dashboard's files, which take Node and not clang.
status=0
web=$(scripts/web.sh compare 2>&1) || status=$?
case $status in
0) web= ;;
77) web=$(tail -n 1 <<<"$web") ;;
*) echo "$web" && exit 1 ;;
esac

if ! command -v clang >/dev/null || ! command -v llvm-strip >/dev/null; then
	echo "clang and llvm-strip are not installed (scripts/install-deps.sh bpf)${web:+; $web}"
	exit 77
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# Module caches and HOME stay outside of the copy.
tar -c --exclude=./.git --exclude=./bin --exclude=./dist --exclude=./coverage --exclude=./web/node_modules . | tar -x -C "$copy"
cp -r "$copy" "$copy.before"
trap 'rm -rf "$copy" "$copy.before"' EXIT

(cd "$copy" && "$root/scripts/with-go.sh" go generate ./...)

compiled=()
here=$(scripts/bpf-toolchain.sh)
committed=$(cat tools/bpf-toolchain)
if [ "$here" != "$committed" ]; then
	compiled=(--exclude='*_bpfe[lb].o' --exclude='*_bpfe[lb].go')
fi
if ! diff -rq "${compiled[@]}" "$copy.before" "$copy" | sed "s|$copy.before|.|g; s|$copy|generated|g"; then
	echo "differs from what the sources generate: run 'make generate' and commit the result"
	exit 1
fi
if [ ${#compiled[@]} -gt 0 ]; then
	echo "BPF objects are not compared: the committed ones were made by $committed, this machine has $here${web:+; $web}"
	exit 77
fi
if [ -n "$web" ]; then
	echo "$web"
	exit 77
fi
