// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a host-mode container is sent, for the second stage of its flows.
 *
 * 1. Problem. A container in the host's network has no tap. What it sends is known at
 *    the uplink by its socket's cgroup; what it is sent has no socket yet at any device.
 * 2. Place. The cgroup's own hook, where a packet is handed to a socket of the
 *    container's: after defragmentation and NAT, so with the addresses and ports that
 *    its socket sends from. weir_back is the same for taps (flow.bpf.c).
 * 3. Bound. It only goes on with flows that are in the container's table. It begins
 *    none and takes no place: what others send cannot push out a flow.
 * 4. Cost. One program for each host-mode container whose class is "auto", which goes
 *    with its cgroup. Others have none.
 *
 * Packets begin with IP's header here, so lengths are without that of the link.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A socket's packets have their headers in one piece, and may not be pulled. */
#define WEIR_NO_PULL

#include "intf.h"
#include "known.h"

/* As in tap.bpf.c. */
const volatile __u32 container_number = WEIR_NUMBER_NONE;

/* A packet that is not plain, or that a stage looks at. */
__noinline int weir_answer(struct __sk_buff *skb, __u32 number)
{
	struct weir_headers h = {};
	struct weir_flow_config *config;
	struct weir_bucket *bucket;
	__u32 hash, way;
	void *table;
	int parsed, from_b;

	config = bpf_map_lookup_elem(&flow_configs, &number);
	table = bpf_map_lookup_elem(&flow_tables, &number);
	if (!config || !table)
		return 0;
	parsed = weir_parse(skb, 0, &h);
	if (parsed == WEIR_PARSED_NO || parsed == WEIR_PARSED_LATER_FRAGMENT)
		return 0;
	from_b = weir_normalise(&h.tuple);
	hash = weir_hash(&h.tuple, config);
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return 0;
	way = weir_find(bucket, hash, &h.tuple);
	if (way < WEIR_WAYS)
		weir_go_on(skb, bucket, way & (WEIR_WAYS - 1), &h, from_b, 1, weir_now_ms());
	return 0;
}

SEC("cgroup_skb/ingress")
int weir_answers(struct __sk_buff *skb)
{
	if (weir_known_flow(skb, container_number, 0, 1) < 0)
		weir_answer(skb, container_number);
	/* The packet goes on. */
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
