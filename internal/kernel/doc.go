// Package kernel is the only place that speaks to the Linux kernel about
// networks: devices, namespaces, queueing, and the hooks where BPF programs
// see packets. It knows nothing of containers, policies or shares.
package kernel
