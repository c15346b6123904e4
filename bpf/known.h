/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The class of a packet of a known flow, for as little as can be (flow.h has the
 * rest). What is not plain goes there: other headers than IP's and the transport's,
 * SYNs, fragments, packets in pieces, flows that are not known, foreign, over, or
 * that the second stage still looks at.
 *
 * Everything is in one function: where processors need safe returns
 * (SRSO, Retbleed), each call costs about as much as the look-up.
 */
#ifndef WEIR_KNOWN_H
#define WEIR_KNOWN_H

#include "flow.h"
#include "plain.h"

/* The traffic class of a packet of a known flow, or < 0: to be looked at by flow.h. */
static __always_inline int weir_known_flow(struct __sk_buff *skb, __u32 number, __u32 link_bytes,
					   int foreign)
{
	struct weir_flow_config *config;
	struct weir_bucket *bucket;
	struct weir_plain plain = {};
	struct weir_flow *flow;
	__u32 hash, way, now_ms, responder;
	void *table;

	config = bpf_map_lookup_elem(&flow_configs, &number);
	table = bpf_map_lookup_elem(&flow_tables, &number);
	if (!config || !table)
		return WEIR_CLASS_NONE;
	if (!weir_read_plain(skb, link_bytes, &plain) || plain.syn)
		return -1;
	hash = weir_hash_plain(&plain, config);
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return -1;
	way = weir_way_of(bucket, hash);
	if (way >= WEIR_WAYS)
		return -1;
	/* The compiler knows that it is in range; the verifier has to see it. */
	asm volatile("" : "+r"(way));
	way &= WEIR_WAYS - 1;
	flow = &bucket->flows[way];
	now_ms = weir_now_ms();
	if (!weir_same_plain(&flow->tuple, &plain) ||
	    weir_silent_ms(now_ms, bucket->seen_ms[way]) > WEIR_IDLE_MS ||
	    (plain.has_payload && flow->payloads < WEIR_PAYLOADS) ||
	    (!foreign && (bucket->tags[way] & WEIR_FLOW_TAG_FOREIGN)))
		return -1;
	if (bucket->seen_ms[way] != now_ms)
		bucket->seen_ms[way] = now_ms;
	responder = (plain.from_b != flow->initiator_is_b) & 1;
	flow->bytes[responder] += skb->len;
	flow->packets[responder] += skb->gso_segs ?: 1;
	if (plain.closing)
		flow->closing = 1;
	if (foreign)
		return flow->traffic_class;
	bpf_set_hash(skb, hash);
	return weir_class_of(config, flow, skb, plain.dscp, now_ms);
}

/*
 * There is more EF than goes first. Whether a flow of EF that sends large packets is BE
 * from now on, < 0 where it is not known (police.h).
 */
__noinline int weir_demote(__u32 number, __u32 hash)
{
	struct weir_flow_config *config = bpf_map_lookup_elem(&flow_configs, &number);
	void *table = bpf_map_lookup_elem(&flow_tables, &number);
	struct weir_bucket *bucket;
	struct weir_flow *flow;
	__u32 way;

	if (!config || !table)
		return -1;
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return -1;
	way = weir_way_of(bucket, hash);
	if (way >= WEIR_WAYS)
		return -1;
	asm volatile("" : "+r"(way));
	flow = &bucket->flows[way & (WEIR_WAYS - 1)];
	if (flow->policer != WEIR_POLICER_CONFORMS || flow->load.large < WEIR_DEMOTE_BYTES)
		return 0;
	flow->policer = WEIR_POLICER_BULK;
	flow->load.large = WEIR_BULK_BYTES;
	return 1;
}

/* The traffic class of a packet of a container, which is counted. */
static __always_inline int weir_flow_class(struct __sk_buff *skb, __u32 number, __u32 link_bytes,
					   int foreign)
{
	int class = weir_known_flow(skb, number, link_bytes, foreign);

	return class < 0 ? weir_any_flow(skb, number, link_bytes, foreign) : class;
}

#endif
