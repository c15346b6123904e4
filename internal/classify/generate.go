package classify

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target amd64,arm64 -type weir_number -type weir_tag -type weir_activity uplink ../../bpf/uplink.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target amd64,arm64 veth ../../bpf/veth.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
