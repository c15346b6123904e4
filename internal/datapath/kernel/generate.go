package kernel

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -no-global-types -target bpfel mark ../../../bpf/mark.bpf.c -- -O2 -g -Wall -Werror -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
