/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tag in queue_mapping and tc_index: how a tap writes a container's number and a
 * traffic class into a packet (tap.bpf.c), and how it is known.
 */
#ifndef WEIR_TAG_H
#define WEIR_TAG_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "intf.h"

static __always_inline int weir_is_tag(__u32 value)
{
	return (value & ~(__u32)WEIR_TAG_MASK) == WEIR_TAG_BASE;
}

/* Writes a tag, without WEIR_TAG_BASE, into priority. */
static __always_inline void weir_tag_priority(struct __sk_buff *skb, __u32 tag)
{
	skb->priority = (__u32)WEIR_PRIORITY_MAGIC << WEIR_PRIORITY_MAGIC_SHIFT |
			tag << WEIR_PRIORITY_TAG_SHIFT;
}

static __always_inline void weir_tag(struct __sk_buff *skb, __u32 number, __u32 class,
				     int priority_too)
{
	__u32 tag = (number & WEIR_TAG_NUMBER_MASK) | (class & 3) << WEIR_TAG_CLASS_SHIFT;

	skb->queue_mapping = WEIR_TAG_BASE | tag;
	skb->tc_index = WEIR_TAG_BASE | tag;
	if (priority_too || skb->protocol == bpf_htons(ETH_P_IPV6))
		weir_tag_priority(skb, tag);
}

/* Clears a tag in queue_mapping, which chooses a transmit queue from here on. */
static __always_inline void weir_clear_tag(struct __sk_buff *skb)
{
	if (weir_is_tag(skb->queue_mapping))
		skb->queue_mapping = 0;
}

#endif
