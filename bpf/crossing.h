/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether packets reach the IFB that the uplink's ingress hook redirects them to
 * (incoming.bpf.c, 4).
 */
#ifndef WEIR_CROSSING_H
#define WEIR_CROSSING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* How long packets go past an IFB that one did not reach, until one tries again. */
#define WEIR_CROSSING_RETRY_MS 1000

struct weir_crossing {
	/* Not 0: the last packet has left the uplink and has not arrived at the IFB. */
	__u32 leaving;
	/* When a packet last tried, while leaving stays. */
	__u32 tried_ms;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_crossing);
} crossings SEC(".maps");

static __always_inline struct weir_crossing *weir_crossing_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&crossings, &zero);
}

static __always_inline void weir_arrived(void)
{
	struct weir_crossing *crossing = weir_crossing_here();

	if (crossing)
		crossing->leaving = 0;
}

#endif
