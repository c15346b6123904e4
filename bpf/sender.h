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
 * 5. Fragments. The first fragment of a received packet leaves an entry for the later
 *    ones, which have no ports (incoming.bpf.c): the tuple has their ID there, and 0 as
 *    its protocol. Such entries take no place from flows, but from others of their kind.
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
/* How long after the first fragment of a packet others may follow: IDs are used again. */
#define WEIR_FRAGMENTS_MS 1000

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

/*
 * Which place in a bucket a flow of a container's takes, or the fragments of a packet for
 * it; WEIR_WAYS for none.
 */
__noinline int weir_take_sender(struct weir_sender_bucket *bucket, __u32 number, __u32 fragments,
				__u32 now_ms)
{
	__u32 i, j, at = WEIR_WAYS, best = 0;

	if (!bucket)
		return WEIR_WAYS;
	for (i = 0; i < WEIR_WAYS; i++) {
		__u32 silent_ms = weir_silent_ms(now_ms, bucket->seen_ms[i]) & 0x3ffffff;
		__u32 has = bucket->numbers[i] == number, rank;
		__u32 is_fragments = ((__u32)bucket->tuples[i].proto - 1) >> 31;
		__u32 most_ms = WEIR_IDLE_MS - is_fragments * (WEIR_IDLE_MS - WEIR_FRAGMENTS_MS);

		if (!bucket->tags[i] || silent_ms > most_ms)
			return i;
		if (bucket->tags[i] == WEIR_FLOW_TAG_BUSY || fragments > is_fragments)
			continue;
		/* No branch, or there would be many ways for the verifier to go. */
		for (j = 0; j < WEIR_WAYS; j++)
			has += ((__u32)(bucket->numbers[i] ^ bucket->numbers[j]) - 1) >> 31;
		/* Of equals fragments, then the newcomer, then who was silent for longest. */
		rank = (has & 15) << 28 | is_fragments << 27 |
		       (__u32)(bucket->numbers[i] == number) << 26 | silent_ms;
		if (rank >= best) {
			best = rank;
			at = i;
		}
	}
	return at;
}

/*
 * What weir_read_other returns: enum weir_parsed; whether the source is b of the tuple; where
 * the transport's header is, from the beginning of the packet.
 */
#define WEIR_OTHER_PARSED 0xff
#define WEIR_OTHER_FROM_B 0x100
#define WEIR_OTHER_TRANSPORT_SHIFT 16

/* Reads the tuple of a packet that is not plain. */
__noinline int weir_read_other(struct __sk_buff *skb, __u32 link_bytes, struct weir_tuple *tuple)
{
	struct weir_headers h = {};
	int parsed = weir_parse(skb, link_bytes, &h), from_b;

	if (!tuple)
		return WEIR_PARSED_NO;
	from_b = weir_normalise(&h.tuple) ? WEIR_OTHER_FROM_B : 0;
	*tuple = h.tuple;
	return parsed | from_b | h.transport << WEIR_OTHER_TRANSPORT_SHIFT;
}

/* Reads the tuple that the first fragment of a packet leaves for the later ones. */
__noinline int weir_read_fragments(struct __sk_buff *skb, __u32 link_bytes, struct weir_tuple *tuple)
{
	struct weir_headers h = {};

	if (!tuple || weir_parse(skb, link_bytes, &h) < WEIR_PARSED_FIRST_FRAGMENT)
		return 0;
	weir_order(&h.tuple);
	h.tuple.port_a = h.fragment_id >> 16;
	h.tuple.port_b = h.fragment_id;
	/* IPv4 has an ID for each protocol. */
	if (h.tuple.family == 4)
		h.tuple.port_a = h.tuple.proto;
	h.tuple.proto = 0;
	*tuple = h.tuple;
	return 1;
}

/* A tuple as that of a plain packet. */
static __always_inline void weir_as_plain(const struct weir_tuple *tuple, struct weir_plain *plain)
{
	const __u64 *words = (const void *)tuple;

	plain->a0 = words[0], plain->a1 = words[1];
	plain->b0 = words[2], plain->b1 = words[3];
	plain->ports = (__u32)words[4], plain->rest = words[4] >> 32;
}

static __always_inline void weir_as_tuple(const struct weir_plain *plain, struct weir_tuple *tuple)
{
	__u64 *words = (void *)tuple;

	words[0] = plain->a0, words[1] = plain->a1;
	words[2] = plain->b0, words[3] = plain->b1;
	words[4] = plain->ports | plain->rest << 32;
}

/* Notes the number and class of a tuple. */
static __always_inline void weir_note(const struct weir_plain *plain, __u32 number, __u32 class)
{
	struct weir_sender_bucket *bucket;
	struct weir_flow_config *config;
	__u32 zero = 0, hash, index, way, now_ms, tag, fragments = !(plain->rest & 0xff);
	void *table;

	table = bpf_map_lookup_elem(&sender_table, &zero);
	config = bpf_map_lookup_elem(&flow_configs, &zero);
	if (!table || !config)
		return;
	hash = weir_hash_plain(plain, config);
	index = hash & config->bucket_mask;
	bucket = bpf_map_lookup_elem(table, &index);
	if (!bucket)
		return;
	now_ms = weir_now_ms();
	tag = weir_flow_tag(hash, 0);
#pragma unroll
	for (way = 0; way < WEIR_WAYS; way++) {
		if (bucket->tags[way] != tag || !weir_same_plain(&bucket->tuples[way], plain))
			continue;
		/* A raw socket can send with the ports of another container's flow. */
		if (bucket->numbers[way] != number) {
			if (!fragments &&
			    weir_silent_ms(now_ms, bucket->seen_ms[way]) < WEIR_SENDER_HOLD_MS)
				return;
			bucket->numbers[way] = number;
		}
		if (bucket->seen_ms[way] != now_ms)
			bucket->seen_ms[way] = now_ms;
		if (bucket->classes[way] != class)
			bucket->classes[way] = class;
		return;
	}
	way = weir_take_sender(bucket, number, fragments, now_ms);
	if (way >= WEIR_WAYS)
		return;
	asm volatile("" : "+r"(way));
	way &= WEIR_WAYS - 1;
	index = bucket->tags[way];
	if (index == WEIR_FLOW_TAG_BUSY ||
	    __sync_val_compare_and_swap(&bucket->tags[way], index, WEIR_FLOW_TAG_BUSY) != index)
		return;
	bucket->seen_ms[way] = now_ms;
	bucket->numbers[way] = number;
	bucket->classes[way] = class;
	weir_as_tuple(plain, &bucket->tuples[way]);
	__sync_lock_test_and_set(&bucket->tags[way], tag);
}

/* Notes whose a packet is that leaves, by its tuple. */
__noinline int weir_note_sender(struct __sk_buff *skb, __u32 number, __u32 class, __u32 link_bytes)
{
	struct weir_plain plain = {};

	if (!weir_read_plain(skb, link_bytes, &plain)) {
		struct weir_tuple tuple = {};
		int parsed = weir_read_other(skb, link_bytes, &tuple) & WEIR_OTHER_PARSED;

		if (parsed == WEIR_PARSED_NO || parsed == WEIR_PARSED_LATER_FRAGMENT)
			return 0;
		weir_as_plain(&tuple, &plain);
	}
	weir_note(&plain, number, class);
	return 0;
}

#endif
