/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What origin.bpf.c tells uplink.bpf.c: the namespace that a processor is at
 * this moment transmitting a packet of.
 */
#ifndef WEIR_ORIGIN_H
#define WEIR_ORIGIN_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/*
 * A transmission takes microseconds. What is older, in ticks of the kernel's
 * clock, was left by a watch that ended in the middle of one.
 */
#define WEIR_ORIGIN_TICKS 16

struct weir_origin {
	/* The address of the transmitting device; 0 for none. */
	__u64 device;
	__u64 since_ticks;
	/* The inode of its namespace. */
	__u32 netns;
	__u32 unused;
};

/* One map for all programs of an agent. Written by origin.bpf.c only. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_origin);
} origins SEC(".maps");

/*
 * The packets that a thread of ipvlan's will send on later, by their address, and
 * the inodes of the namespaces they come from. ipvlan has at most 1000 waiting
 * for each uplink (IPVLAN_QBACKLOG_LIMIT); what it drops stays in here until the
 * place is needed. Entries are made by origin.bpf.c and taken by uplink.bpf.c.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} deferred SEC(".maps");

static __always_inline struct weir_origin *weir_origin(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&origins, &zero);
}

#endif
