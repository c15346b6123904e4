package identity

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type weir_number -type weir_class -type weir_tag -type weir_level -type weir_link -type weir_priority -type weir_saved -type weir_activity -type weir_cgroup -type weir_minors -type weir_class_activity uplink ../../bpf/uplink.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel tap ../../bpf/tap.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -type weir_delay -type weir_delays delay ../../bpf/delay.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel origin ../../bpf/origin.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel below ../../bpf/below.bpf.c -- -O2 -g -Wall -Werror -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
