/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose a flow is that the link sees.
 *
 * 1. Problem. What comes in at the uplink has the addresses and ports that NAT gave
 *    it, so it does not say which container it is for.
 * 2. Method. At the uplink's egress the container is known, and the packet is as the
 *    answer will have it. So there the tuple is noted with the number, for
 *    containers whose flows are told apart, and where downloads are shared for all.
 * 3. Bound. All share one table, as in flow.h: buckets of WEIR_WAYS. In a bucket that
 *    is full the container that has most places there loses the one that was silent
 *    for longest, which is the newcomer itself if none has more. So a
 *    container that floods takes places from itself, and never one from another that
 *    has fewer in the bucket.
 * 4. Holders. An entry that is older than its container's table is of a
 *    container that had the number before (struct weir_flow_config, since_ms). A reader
 *    of the table looks at that.
 */
#ifndef WEIR_SENDER_H
#define WEIR_SENDER_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "intf.h"
#include "plain.h"
#include "table.h"

/* How long a flow has to be silent before it may be another container's. */
#define WEIR_SENDER_HOLD_MS 1000

struct weir_sender_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_sender_bucket);
} weir_sender_template SEC(".maps");

/* The table, or none. Put there by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct weir_sender_map);
} sender_table SEC(".maps") = {};

/* Makes the type known (BTF keeps what is used). */
const struct weir_sender_bucket *weir_sender_bucket_btf __attribute__((unused));

/* Which place in a bucket a flow of a container's takes; WEIR_WAYS for none. */
__noinline int weir_take_sender(struct weir_sender_bucket *bucket, __u32 number, __u32 now_ms)
{
	__u32 i, j, at = WEIR_WAYS, best = 0;

	if (!bucket)
		return WEIR_WAYS;
	for (i = 0; i < WEIR_WAYS; i++) {
		__u32 silent_ms = weir_silent_ms(now_ms, bucket->seen_ms[i]) & 0x7ffffff;
		__u32 has = bucket->numbers[i] == number, rank;

		if (!bucket->tags[i] || silent_ms > WEIR_IDLE_MS)
			return i;
		if (bucket->tags[i] == WEIR_FLOW_TAG_BUSY)
			continue;
		/* No branch, or there would be many ways for the verifier to go. */
		for (j = 0; j < WEIR_WAYS; j++)
			has += ((__u32)(bucket->numbers[i] ^ bucket->numbers[j]) - 1) >> 31;
		/* Of equals the newcomer, then who was silent for longest. */
		rank = (has & 15) << 28 | (__u32)(bucket->numbers[i] == number) << 27 | silent_ms;
		if (rank >= best) {
			best = rank;
			at = i;
		}
	}
	return at;
}

/*
 * The tuple of a packet that is not plain: 0 if it has none, 2 if its source is b of the
 * tuple, otherwise 1.
 */
__noinline int weir_read_any(struct __sk_buff *skb, __u32 link_bytes, struct weir_tuple *tuple)
{
	struct weir_headers h = {};
	int parsed = weir_parse(skb, link_bytes, &h);

	if (!tuple || parsed == WEIR_PARSED_NO || parsed == WEIR_PARSED_LATER_FRAGMENT)
		return 0;
	parsed = 1 + weir_normalise(&h.tuple);
	*tuple = h.tuple;
	return parsed;
}

/* Notes whose a packet is that leaves, by its tuple. */
__noinline int weir_note_sender(struct __sk_buff *skb, __u32 number, __u32 class, __u32 link_bytes)
{
	struct weir_sender_bucket *bucket;
	struct weir_flow_config *config;
	struct weir_plain plain = {};
	__u32 zero = 0, hash, index, way, now_ms, tag;
	void *table;

	table = bpf_map_lookup_elem(&sender_table, &zero);
	config = bpf_map_lookup_elem(&flow_configs, &zero);
	if (!table || !config)
		return 0;
	if (!weir_read_plain(skb, link_bytes, &plain)) {
		struct weir_tuple tuple = {};
		const __u64 *words = (const void *)&tuple;

		if (!weir_read_any(skb, link_bytes, &tuple))
			return 0;
		plain.a0 = words[0], plain.a1 = words[1];
		plain.b0 = words[2], plain.b1 = words[3];
		plain.ports = (__u32)words[4], plain.rest = words[4] >> 32;
	}
	hash = weir_hash_plain(&plain, config);
	index = hash & config->bucket_mask;
	bucket = bpf_map_lookup_elem(table, &index);
	if (!bucket)
		return 0;
	now_ms = weir_now_ms();
	tag = weir_flow_tag(hash, 0);
#pragma unroll
	for (way = 0; way < WEIR_WAYS; way++) {
		if (bucket->tags[way] != tag || !weir_same_plain(&bucket->tuples[way], &plain))
			continue;
		/* A raw socket can send with the ports of another container's flow. */
		if (bucket->numbers[way] != number) {
			if (weir_silent_ms(now_ms, bucket->seen_ms[way]) < WEIR_SENDER_HOLD_MS)
				return 0;
			bucket->numbers[way] = number;
		}
		if (bucket->seen_ms[way] != now_ms)
			bucket->seen_ms[way] = now_ms;
		if (bucket->classes[way] != class)
			bucket->classes[way] = class;
		return 0;
	}
	way = weir_take_sender(bucket, number, now_ms);
	if (way >= WEIR_WAYS)
		return 0;
	asm volatile("" : "+r"(way));
	way &= WEIR_WAYS - 1;
	index = bucket->tags[way];
	if (index == WEIR_FLOW_TAG_BUSY ||
	    __sync_val_compare_and_swap(&bucket->tags[way], index, WEIR_FLOW_TAG_BUSY) != index)
		return 0;
	bucket->seen_ms[way] = now_ms;
	bucket->numbers[way] = number;
	bucket->classes[way] = class;
	((__u64 *)&bucket->tuples[way])[0] = plain.a0;
	((__u64 *)&bucket->tuples[way])[1] = plain.a1;
	((__u64 *)&bucket->tuples[way])[2] = plain.b0;
	((__u64 *)&bucket->tuples[way])[3] = plain.b1;
	((__u64 *)&bucket->tuples[way])[4] = plain.ports | plain.rest << 32;
	__sync_lock_test_and_set(&bucket->tags[way], tag);
	return 0;
}

#endif
