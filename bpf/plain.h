/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the tuple of a plain packet: right behind the link layer's header one of IP
 * without options or extensions, whole, of TCP or UDP. parse.h reads all others.
 *
 * The tuple stays in registers: written in halves and read as a whole it would wait
 * for the stores.
 */
#ifndef WEIR_PLAIN_H
#define WEIR_PLAIN_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

/* A plain packet: struct weir_tuple as words, and what else is counted. */
struct weir_plain {
	__u64 a0, a1, b0, b1, ports, rest;
	int from_b;
	__u32 dscp;
	__u32 has_payload;
	__u32 syn;
	__u32 closing;
};

/* The transport's header at p; the verifier knows that 8 bytes are there. */
static __always_inline int weir_plain_transport(__u8 *p, void *end, __u32 proto, __s32 length,
						struct weir_plain *plain)
{
	__u32 size = 8;

	plain->ports = *(__u32 *)p;
	if (proto == IPPROTO_TCP) {
		if ((void *)p + 20 > end)
			return 0;
		size = (p[12] >> 4) * 4;
		plain->syn = p[13] & 2;
		plain->closing = p[13] & 5;
		if (size < 20)
			return 0;
	} else if (proto != IPPROTO_UDP) {
		return 0;
	}
	if (length < (__s32)size)
		return 0;
	plain->has_payload = length > (__s32)size;
	return 1;
}

/* Reads a plain packet, and puts the lesser side first (weir_normalise). */
static __always_inline int weir_read_plain(struct __sk_buff *skb, __u32 link_bytes,
					   struct weir_plain *plain)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 kind = skb->protocol;
	__u64 word;
	__u8 *p;

	asm volatile("" : "+r"(data), "+r"(end));
	if (link_bytes > ETH_HLEN)
		return 0;
	p = data + link_bytes;
	if ((void *)p + 28 > end || data + ETH_HLEN > end)
		return 0;
	if (link_bytes)
		kind = *(__be16 *)(data + ETH_HLEN - 2);
	if (kind == bpf_htons(ETH_P_IP)) {
		if (p[0] != 0x45 || (*(__be16 *)(p + 6) & bpf_htons(0x3fff)))
			return 0;
		plain->dscp = p[1] >> 2;
		plain->rest = p[9] | 4 << 8;
		plain->a0 = *(__u32 *)(p + 12);
		plain->b0 = *(__u32 *)(p + 16);
		plain->a1 = plain->b1 = 0;
		if (!weir_plain_transport(p + 20, end, p[9], (p[2] << 8 | p[3]) - 20, plain))
			return 0;
	} else if (kind == bpf_htons(ETH_P_IPV6)) {
		if ((void *)p + 48 > end || p[0] >> 4 != 6)
			return 0;
		plain->dscp = (p[0] & 15) << 2 | p[1] >> 6;
		plain->rest = p[6] | 6 << 8;
		plain->a0 = *(__u64 *)(p + 8);
		plain->a1 = *(__u64 *)(p + 16);
		plain->b0 = *(__u64 *)(p + 24);
		plain->b1 = *(__u64 *)(p + 32);
		if (!weir_plain_transport(p + 40, end, p[6], p[4] << 8 | p[5], plain))
			return 0;
	} else {
		return 0;
	}
	plain->from_b = 0;
	if (plain->a0 < plain->b0 ||
	    (plain->a0 == plain->b0 &&
	     (plain->a1 < plain->b1 ||
	      (plain->a1 == plain->b1 &&
	       (__u16)plain->ports <= (__u32)plain->ports >> 16))))
		return 1;
	plain->from_b = 1;
	word = plain->a0, plain->a0 = plain->b0, plain->b0 = word;
	word = plain->a1, plain->a1 = plain->b1, plain->b1 = word;
	plain->ports = (plain->ports >> 16 | plain->ports << 16) & 0xffffffff;
	return 1;
}

/* As weir_hash; zeros add nothing. */
static __always_inline __u32 weir_hash_plain(const struct weir_plain *plain,
					     const struct weir_flow_config *config)
{
	__u64 hash = config->keys[10] + (__u32)plain->a0 * config->keys[0] +
		     (__u32)plain->b0 * config->keys[4] + plain->ports * config->keys[8] +
		     plain->rest * config->keys[9];

	if (plain->rest >> 8 == 6)
		hash += (plain->a0 >> 32) * config->keys[1] +
			(__u32)plain->a1 * config->keys[2] + (plain->a1 >> 32) * config->keys[3] +
			(plain->b0 >> 32) * config->keys[5] +
			(__u32)plain->b1 * config->keys[6] + (plain->b1 >> 32) * config->keys[7];
	return hash >> 32;
}

static __always_inline int weir_same_plain(const struct weir_tuple *tuple,
					   const struct weir_plain *plain)
{
	const __u64 *words = (const void *)tuple;

	return !((words[0] ^ plain->a0) | (words[1] ^ plain->a1) | (words[2] ^ plain->b0) |
		 (words[3] ^ plain->b1) | (words[4] ^ (plain->ports | plain->rest << 32)));
}

#endif
