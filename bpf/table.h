/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tables of flows (flow.h): where they are, and where in one a flow may be.
 *
 * The hash of its flow goes with a packet to the uplink in skb->hash, which NAT and
 * encapsulation leave alone: there the tuple may be another. It is the same for all
 * packets of a flow, as those who use the field expect.
 */
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

/* A packet after so long begins another flow (internal/apps/flow, tracker.go). */
#define WEIR_IDLE_MS 300000

struct weir_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_bucket);
} weir_table_template SEC(".maps");

/* The table of each container, by number; none for most. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__array(values, struct weir_table);
} flow_tables SEC(".maps") = {};

/* Written by the agent, before the table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_flow_config);
} flow_configs SEC(".maps");

/* Makes the type known (BTF keeps what is used). */
const struct weir_bucket *weir_bucket_btf __attribute__((unused));

struct weir_clock {
	__u64 ticks;
	__u32 now_ms;
	__u32 unused;
};

/* What weir_now_ms said last. Written here only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_clock);
} flow_clock SEC(".maps");

/* The clock of struct weir_bucket, asked once in a tick of the kernel's. */
static __always_inline __u32 weir_now_ms(void)
{
	__u64 ticks = bpf_jiffies64();
	struct weir_clock *clock;
	__u32 zero = 0;

	clock = bpf_map_lookup_elem(&flow_clock, &zero);
	if (!clock)
		return bpf_ktime_get_coarse_ns() >> 20;
	if (clock->ticks != ticks) {
		clock->now_ms = bpf_ktime_get_coarse_ns() >> 20;
		clock->ticks = ticks;
	}
	return clock->now_ms;
}

/*
 * How long a place has been silent, as of what this processor was told lately of the
 * time: 0 also where another one has been told a later time and has seen it since.
 */
static __always_inline __u32 weir_silent_ms(__u32 now_ms, __u32 seen_ms)
{
	__u32 silent_ms = now_ms - seen_ms;

	/* No branch, or there would be many ways for the verifier to go. */
	return silent_ms & ((silent_ms >> 31) - 1);
}

static __always_inline __u32 weir_hash(const struct weir_tuple *tuple,
				       const struct weir_flow_config *config)
{
	const __u64 *words = (const void *)tuple;
	__u64 hash = config->keys[10];
	int i;

#pragma unroll
	for (i = 0; i < 5; i++)
		hash += (__u32)words[i] * config->keys[2 * i] +
			(words[i] >> 32) * config->keys[2 * i + 1];
	return hash >> 32;
}

/* What a place's tag is that holds a flow of this hash, foreign or not. */
static __always_inline int weir_holds(__u32 tag, __u32 hash)
{
	return (tag | WEIR_FLOW_TAG_FOREIGN) ==
	       (hash | WEIR_FLOW_TAG_HELD | WEIR_FLOW_TAG_FOREIGN);
}

static __always_inline __u32 weir_flow_tag(__u32 hash, int foreign)
{
	return (hash & ~(__u32)(WEIR_FLOW_TAG_HELD | WEIR_FLOW_TAG_FOREIGN)) | WEIR_FLOW_TAG_HELD |
	       (foreign ? WEIR_FLOW_TAG_FOREIGN : 0);
}

static __always_inline struct weir_bucket *weir_bucket_of(void *table, __u32 hash, __u32 mask)
{
	__u32 index = hash & mask;

	return bpf_map_lookup_elem(table, &index);
}

#endif
