#!/bin/bash
# Prints what the bytes of a compiled BPF object depend on besides the sources:
# the compiler and the kernel headers. `make generate` keeps it beside the
# committed objects' sources, in tools/bpf-toolchain.
set -euo pipefail
clang=$(clang -dumpversion)
code=$(awk '$2 == "LINUX_VERSION_CODE" { print $3 }' /usr/include/linux/version.h)
echo "clang $clang, Linux headers $((code >> 16)).$((code >> 8 & 255))"
