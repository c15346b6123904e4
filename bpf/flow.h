/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flows of containers whose traffic class is "auto".
 *
 * 1. Problem. Each packet has to get the class of its flow, for less than what a
 *    packet costs anyway, while a container may begin as many flows as it likes.
 * 2. Place. Each container has a table of its own, so that none can push out the
 *    flows of another. It is an array of buckets of WEIR_WAYS flows: a flow may be
 *    in one bucket only, by hash, and what is new takes the place of what was
 *    silent for longest there. The tags of a bucket and when each flow was last seen
 *    are one cache line, so a known flow costs three of them. Against a hash map
 *    (LRU): no allocation, no lock, and half the memory.
 *    Hash: multilinear (Lemire and Kaser, "Strongly universal string hashing is
 *    fast", 2014), whose collisions cannot be found without the keys.
 * 3. Both directions of a flow are one entry. Fragments after the first have no
 *    ports: the first leaves an entry for them under its ID, which names the flow.
 * 4. Who sends to a container cannot push out its flows. A flow that another host
 *    began is foreign until the container answers with more than the kernel says to
 *    any SYN (SYN-ACK, RST). It takes the place of another foreign flow or none, and is
 *    the first to go; so of what such answers begin there is one in a bucket that is full.
 * 5. Known flows. Nearly all packets are of a known flow, of a plain header, and past
 *    what the second stage looks at: known.h is for these, and without a call.
 * 6. EF is policed (police.h).
 * 7. Races. A place is taken by compare and exchange of its tag; who loses goes
 *    without a place, and the next packet finds one. A flow read while it is
 *    replaced may give one packet the class of another. Counters of a flow are not
 *    exact where several processors handle it at once. Nothing is worse than that.
 */
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "dscp.h"
#include "intf.h"
#include "parse.h"
#include "police.h"
#include "table.h"
#include "tree.h"

/* Written here only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_flow_counts);
} flow_counts SEC(".maps");

static __always_inline int weir_same(const struct weir_tuple *x, const struct weir_tuple *y)
{
	const __u64 *a = (const void *)x, *b = (const void *)y;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]));
}

/* Puts the lesser address first, for fragments. */
static __always_inline void weir_order(struct weir_tuple *t)
{
	__u64 *a = (void *)t->a, *b = (void *)t->b, word;

	if (a[0] < b[0] || (a[0] == b[0] && a[1] <= b[1]))
		return;
	word = a[0], a[0] = b[0], b[0] = word;
	word = a[1], a[1] = b[1], b[1] = word;
}

/* Whether the source is b of the tuple; puts the lesser side into a. */
static __always_inline int weir_normalise(struct weir_tuple *t)
{
	__u64 *a = (void *)t->a, *b = (void *)t->b;
	__u64 word;
	__be16 port;

	if (a[0] < b[0] ||
	    (a[0] == b[0] && (a[1] < b[1] || (a[1] == b[1] && t->port_a <= t->port_b))))
		return 0;
	word = a[0], a[0] = b[0], b[0] = word;
	word = a[1], a[1] = b[1], b[1] = word;
	port = t->port_a, t->port_a = t->port_b, t->port_b = port;
	return 1;
}

/* Whether a packet of a flow, whose source is a of sent, comes from b of the flow's tuple. */
static __always_inline int weir_from_b(const struct weir_tuple *flow, const struct weir_tuple *sent)
{
	const __u64 *a = (const void *)flow->a, *source = (const void *)sent->a;

	return !!((a[0] ^ source[0]) | (a[1] ^ source[1]));
}

/* The place in a bucket whose tag is that of a hash: the first one, WEIR_WAYS for none. */
static __always_inline __u32 weir_way_of(const struct weir_bucket *bucket, __u32 hash)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < WEIR_WAYS; i++)
		if (weir_holds(bucket->tags[i], hash))
			return i;
	return WEIR_WAYS;
}

/* The place of a flow in its bucket, WEIR_WAYS for none. */
__noinline int weir_find(struct weir_bucket *bucket, __u32 hash, const struct weir_tuple *tuple)
{
	__u32 i;

	if (!bucket || !tuple)
		return WEIR_WAYS;
#pragma unroll
	for (i = 0; i < WEIR_WAYS; i++)
		if (weir_holds(bucket->tags[i], hash) &&
		    weir_same(&bucket->flows[i].tuple, tuple))
			return i;
	return WEIR_WAYS;
}

/*
 * Takes a place in a bucket: one that is free, or else the one that was silent for
 * longest of those that are foreign or over, or else of all; but not of the
 * container's own flows for a foreign one.
 */
__noinline int weir_take(struct weir_bucket *bucket, __u32 now_ms, int foreign,
			 struct weir_flow_counts *counts)
{
	const __u32 first = 1u << 31;
	__u32 i, at = 0, best = 0, had = 0;

	if (!bucket || !counts)
		return WEIR_WAYS;
#pragma unroll
	for (i = 0; i < WEIR_WAYS; i++) {
		__u32 tag = bucket->tags[i];
		/* At least 1, so that one of the same moment is older than none. */
		__u32 rank = (weir_silent_ms(now_ms, bucket->seen_ms[i]) & (first / 2 - 1)) + 1;

		if (!tag)
			rank = ~0u;
		else if (tag == WEIR_FLOW_TAG_BUSY)
			rank = 0;
		else if ((tag & WEIR_FLOW_TAG_FOREIGN) || rank > WEIR_IDLE_MS)
			rank |= first;
		else if (foreign)
			rank = 0;
		if (rank > best) {
			at = i;
			best = rank;
			had = tag;
		}
	}
	if (!best && foreign) {
		counts->refused++;
		return WEIR_WAYS;
	}
	if (!best || __sync_val_compare_and_swap(&bucket->tags[at & (WEIR_WAYS - 1)], had,
						 WEIR_FLOW_TAG_BUSY) != had) {
		counts->lost++;
		return WEIR_WAYS;
	}
	if (had)
		counts->evicted++;
	return at;
}

/* What is added to a flow by a packet: its lengths come one for each segment. */
__noinline int weir_add(struct weir_flow *flow, struct __sk_buff *skb,
			const struct weir_headers *h, int from_b)
{
	__u32 segments = skb->gso_segs ?: 1, size = skb->gso_size, left, i;
	int responder;

	if (!flow || !h)
		return 0;
	left = h->payload_bytes;
	responder = from_b != flow->initiator_is_b;
	flow->bytes[responder & 1] += skb->len;
	flow->packets[responder & 1] += segments;
	flow->closing |= h->closing;
	if (flow->payloads >= WEIR_PAYLOADS)
		return 0;
	if (!responder && h->syn && !h->ack && !flow->syn) {
		flow->syn = 1;
		flow->mss = h->mss;
		flow->window = h->window;
		flow->wscale = h->wscale;
	}
	for (i = 0; i < WEIR_PAYLOADS && left; i++) {
		__u32 place = flow->payloads, bytes = left;

		if (place >= WEIR_PAYLOADS)
			return 0;
		if (segments > 1 && size && bytes > size)
			bytes = size;
		/* The compiler knows that it is in range; the verifier has to see it. */
		asm volatile("" : "+r"(place));
		flow->lengths[place & 7] = bytes > 0xffff ? 0xffff : bytes;
		flow->responders |= (responder & 1) << place;
		flow->payloads = place + 1;
		left -= bytes;
	}
	return 0;
}

/* A flow that begins with this packet, but for its verdict. */
static __always_inline void weir_begin(struct weir_flow *flow, const struct weir_headers *h,
				       int from_b, __u32 now_ms)
{
	/* Who answers a SYN did not begin. */
	int answer = h->tuple.proto == IPPROTO_TCP && h->syn && h->ack;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->tuple = h->tuple;
	flow->initiator_is_b = from_b != answer;
	flow->ttl = answer ? 0 : h->ttl;
	if (h->syn && !answer) {
		flow->syn = 1;
		flow->mss = h->mss;
		flow->window = h->window;
		flow->wscale = h->wscale;
	}
	flow->began_ms = now_ms;
}

/* The class that a packet of the container's has, of a flow that has a verdict. */
static __always_inline __u32 weir_class_of(const struct weir_flow_config *config,
					   struct weir_flow *flow, struct __sk_buff *skb,
					   __u32 dscp, __u32 now_ms)
{
	__u32 asked = 0;

	if (config->trust_dscp)
		asked = weir_class_of_dscp(dscp);
	if (flow->dscp_class != asked)
		flow->dscp_class = asked;
	if (asked)
		return asked;
	if (flow->traffic_class != WEIR_CLASS_EF || flow->payloads < WEIR_PAYLOADS)
		return flow->traffic_class;
	return weir_police(flow, skb->len, skb->gso_size ?: skb->len, now_ms);
}

/*
 * Where the first fragment of a packet leaves an entry for the others: its bucket, and
 * their tuple and hash.
 */
static __always_inline struct weir_bucket *
weir_fragments_of(const struct weir_headers *h, const struct weir_flow_config *config, void *table,
		  struct weir_tuple *tuple, __u32 *hash)
{
	*tuple = h->tuple;
	tuple->port_a = h->fragment_id >> 16;
	tuple->port_b = h->fragment_id;
	tuple->kind = WEIR_FLOW_FRAGMENTS;
	/* IPv6 has one ID for all protocols. Which side sends does not matter. */
	if (tuple->family == 6)
		tuple->proto = 0;
	weir_order(tuple);
	*hash = weir_hash(tuple, config);
	return weir_bucket_of(table, *hash, config->bucket_mask);
}

/* Leaves an entry for the later fragments of a packet of a flow: its hash, and the class. */
__noinline int weir_first_fragment(const struct weir_headers *h, __u32 number, __u32 flow_hash,
				   __u32 class, __u32 now_ms)
{
	struct weir_flow_config *config;
	struct weir_flow_counts *counts;
	struct weir_tuple tuple = {};
	struct weir_bucket *bucket;
	struct weir_flow *entry;
	__u32 way, hash;
	void *table;

	if (!h)
		return 0;
	config = bpf_map_lookup_elem(&flow_configs, &number);
	counts = bpf_map_lookup_elem(&flow_counts, &number);
	table = bpf_map_lookup_elem(&flow_tables, &number);
	if (!config || !counts || !table)
		return 0;
	bucket = weir_fragments_of(h, config, table, &tuple, &hash);
	if (!bucket)
		return 0;
	way = weir_find(bucket, hash, &tuple);
	if (way >= WEIR_WAYS)
		way = weir_take(bucket, now_ms, 0, counts);
	if (way >= WEIR_WAYS)
		return 0;
	way &= WEIR_WAYS - 1;
	entry = &bucket->flows[way];
	entry->tuple = tuple;
	entry->traffic_class = class;
	entry->bytes[0] = flow_hash;
	bucket->seen_ms[way] = now_ms;
	__sync_lock_test_and_set(&bucket->tags[way], weir_flow_tag(hash, 0));
	return 0;
}

/*
 * The class of a later fragment, which counts as a packet of its flow; none of one that
 * comes before the first.
 */
__noinline int weir_later_fragment(struct __sk_buff *skb, const struct weir_headers *h,
				   __u32 number, __u32 now_ms)
{
	struct weir_flow_config *config;
	struct weir_tuple tuple = {};
	struct weir_bucket *bucket;
	struct weir_flow *flow;
	__u32 way, hash, class, responder;
	void *table;

	if (!h)
		return WEIR_CLASS_NONE;
	config = bpf_map_lookup_elem(&flow_configs, &number);
	table = bpf_map_lookup_elem(&flow_tables, &number);
	if (!config || !table)
		return WEIR_CLASS_NONE;
	bucket = weir_fragments_of(h, config, table, &tuple, &hash);
	if (!bucket)
		return WEIR_CLASS_NONE;
	way = weir_find(bucket, hash, &tuple);
	if (way >= WEIR_WAYS)
		return WEIR_CLASS_NONE;
	flow = &bucket->flows[way & (WEIR_WAYS - 1)];
	class = flow->traffic_class;
	hash = flow->bytes[0];
	bpf_set_hash(skb, hash);
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return class;
	way = weir_way_of(bucket, hash);
	if (way >= WEIR_WAYS)
		return class;
	/* The compiler knows that it is in range; the verifier has to see it. */
	asm volatile("" : "+r"(way));
	flow = &bucket->flows[way & (WEIR_WAYS - 1)];
	responder = weir_from_b(&flow->tuple, &h->tuple) != flow->initiator_is_b;
	flow->bytes[responder & 1] += skb->len;
	flow->packets[responder & 1]++;
	return weir_class_of(config, flow, skb, h->dscp, now_ms);
}

/* Whether a packet of the container's makes a flow its own that a peer began. */
static __always_inline int weir_makes_own(const struct weir_headers *h)
{
	return !(h->syn && h->ack) && !h->closing;
}

/* A packet of a flow that is known goes on with it; 0 if it begins another. */
static __always_inline int weir_go_on(struct __sk_buff *skb, struct weir_bucket *bucket, __u32 way,
				      const struct weir_headers *h, int from_b, int foreign,
				      __u32 now_ms)
{
	struct weir_flow *flow = &bucket->flows[way];
	__u32 tag = bucket->tags[way];

	if ((flow->closing && h->syn && !h->ack) ||
	    weir_silent_ms(now_ms, bucket->seen_ms[way]) > WEIR_IDLE_MS)
		return 0;
	if (!foreign && (tag & WEIR_FLOW_TAG_FOREIGN) && weir_makes_own(h))
		__sync_val_compare_and_swap(&bucket->tags[way], tag,
					    tag & ~(__u32)WEIR_FLOW_TAG_FOREIGN);
	if (bucket->seen_ms[way] != now_ms)
		bucket->seen_ms[way] = now_ms;
	weir_add(flow, skb, h, from_b);
	if (flow->payloads == WEIR_PAYLOADS && flow->stage == 1)
		weir_second_stage(flow);
	return 1;
}

/*
 * The traffic class of a packet of a container, which is counted; all kinds of
 * packets. foreign: others sent it to the container. It is a program of its own to the
 * verifier: what calls it stays small.
 */
__noinline int weir_any_flow(struct __sk_buff *skb, __u32 number, __u32 link_bytes, int foreign)
{
	struct weir_headers h = {};
	struct weir_flow_config *config;
	struct weir_flow_counts *counts;
	struct weir_bucket *bucket;
	struct weir_flow *flow;
	__u32 now_ms, way, tag, hash;
	int parsed, from_b, class, later;
	void *table;

	config = bpf_map_lookup_elem(&flow_configs, &number);
	counts = bpf_map_lookup_elem(&flow_counts, &number);
	table = bpf_map_lookup_elem(&flow_tables, &number);
	if (!config || !counts || !table)
		return WEIR_CLASS_NONE;
	parsed = weir_parse(skb, link_bytes, &h);
	class = config->trust_dscp ? weir_class_of_dscp(h.dscp) : WEIR_CLASS_NONE;
	if (parsed == WEIR_PARSED_NO) {
		counts->unknown++;
		return class;
	}
	now_ms = weir_now_ms();
	if (parsed == WEIR_PARSED_LATER_FRAGMENT) {
		if (foreign)
			return class;
		later = weir_later_fragment(skb, &h, number, now_ms);
		return class ?: later;
	}
	from_b = weir_normalise(&h.tuple);
	hash = weir_hash(&h.tuple, config);
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return WEIR_CLASS_NONE;
	way = weir_find(bucket, hash, &h.tuple);
	if (way < WEIR_WAYS) {
		way &= WEIR_WAYS - 1;
		flow = &bucket->flows[way];
		if (weir_go_on(skb, bucket, way, &h, from_b, foreign, now_ms))
			goto found;
		/* Another flow of the same ports takes its place. */
		tag = bucket->tags[way];
		if (!weir_holds(tag, hash) ||
		    __sync_val_compare_and_swap(&bucket->tags[way], tag, WEIR_FLOW_TAG_BUSY) != tag)
			return flow->traffic_class;
	} else {
		way = weir_take(bucket, now_ms, foreign, counts);
		if (way >= WEIR_WAYS)
			return class;
		way &= WEIR_WAYS - 1;
		flow = &bucket->flows[way];
	}
	counts->created++;
	weir_begin(flow, &h, from_b, now_ms);
	weir_add(flow, skb, &h, from_b);
	weir_first_stage(flow);
	if (flow->payloads == WEIR_PAYLOADS)
		weir_second_stage(flow);
	bucket->seen_ms[way] = now_ms;
	__sync_lock_test_and_set(&bucket->tags[way], weir_flow_tag(hash, foreign || !weir_makes_own(&h)));
found:
	if (foreign)
		return flow->traffic_class;
	bpf_set_hash(skb, hash);
	class = weir_class_of(config, flow, skb, h.dscp, now_ms);
	if (parsed == WEIR_PARSED_FIRST_FRAGMENT && class)
		weir_first_fragment(&h, number, hash, class, now_ms);
	return class;
}

#endif
