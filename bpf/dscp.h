/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Differentiated services code points (RFC 4594, RFC 8622) as traffic classes, both
 * ways. Read of containers that are trusted, written where the next hop is told.
 */
#ifndef WEIR_DSCP_H
#define WEIR_DSCP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

#define WEIR_DSCP(code) (1ULL << (code))

/* The class that a code point asks for, WEIR_CLASS_NONE for none. */
static __always_inline __u32 weir_class_of_dscp(__u32 dscp)
{
	/* CS5, VOICE-ADMIT, EF, CS6, CS7 */
	const __u64 ef = WEIR_DSCP(40) | WEIR_DSCP(44) | WEIR_DSCP(46) | WEIR_DSCP(48) |
			 WEIR_DSCP(56);
	/* AF1x to AF4x, CS2 to CS4 */
	const __u64 af = WEIR_DSCP(10) | WEIR_DSCP(12) | WEIR_DSCP(14) | WEIR_DSCP(16) |
			 WEIR_DSCP(18) | WEIR_DSCP(20) | WEIR_DSCP(22) | WEIR_DSCP(24) |
			 WEIR_DSCP(26) | WEIR_DSCP(28) | WEIR_DSCP(30) | WEIR_DSCP(32) |
			 WEIR_DSCP(34) | WEIR_DSCP(36) | WEIR_DSCP(38);
	/* LE, CS1 */
	const __u64 be = WEIR_DSCP(1) | WEIR_DSCP(8);
	__u64 bit = WEIR_DSCP(dscp & 63);

	if (bit & ef)
		return WEIR_CLASS_EF;
	if (bit & af)
		return WEIR_CLASS_AF;
	return bit & be ? WEIR_CLASS_BE : WEIR_CLASS_NONE;
}

/*
 * Makes a packet's DSCP say its class: EF, AF31 or default. ECN stays. Also of
 * fragments: all have the field. Packets that are none of IP right behind the
 * link layer's header are left as they are.
 */
__noinline int weir_mark_dscp(struct __sk_buff *skb, __u32 class, __u32 link_bytes)
{
	const __u32 ecn = 3, checksum_offset = 10;
	__u32 dscp = class == WEIR_CLASS_EF ? 46 : class == WEIR_CLASS_AF ? 26 : 0;
	__be16 old, new;
	__u32 first;

	if (bpf_skb_load_bytes(skb, link_bytes, &old, sizeof(old)))
		return 0;
	first = bpf_ntohs(old);
	/* The version: a frame may have a tag in between. */
	if (skb->protocol == bpf_htons(ETH_P_IP) && first >> 12 == 4) {
		new = bpf_htons((first & (0xff00 | ecn)) | dscp << 2);
		/* The sum over the whole packet stays what it is. */
		if (new != old && !bpf_l3_csum_replace(skb, link_bytes + checksum_offset, old, new, 2))
			bpf_skb_store_bytes(skb, link_bytes, &new, sizeof(new), 0);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) && first >> 12 == 6) {
		new = bpf_htons((first & (0xf00f | ecn << 4)) | dscp << 6);
		if (new != old)
			bpf_skb_store_bytes(skb, link_bytes, &new, sizeof(new), BPF_F_RECOMPUTE_CSUM);
	}
	return 0;
}

#endif
