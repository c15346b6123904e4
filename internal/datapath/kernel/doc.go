// Package kernel is the only package that uses the Linux kernel's network interfaces: devices,
// namespaces, queueing, and the hooks of BPF programs. It does not know containers, policies or
// shares.
package kernel
