// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chooses the queue of a packet at a port of a switch that others control: by its DSCP
 * field, its VLAN priority (PCP) or its skb->mark.
 *
 * Problem: Open vSwitch's database cannot choose a queue, and cls_u32 sees no VLAN tag
 * that the kernel keeps beside the packet.
 *
 * Method: a filter of the port's HTB, which asks it for packets whose priority names no
 * class (net/sched/sch_htb.c, htb_classify). It returns a class, or 0 for the default one.
 *
 * Limits: the outer header of a tunnel counts. Behind more than two VLAN tags in the
 * packet there is no DSCP field.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define WEIR_BY_DSCP 0
#define WEIR_BY_PCP 1
#define WEIR_BY_MARK 2

const volatile __u32 weir_by;
/* The bits of skb->mark that hold the value, and how far they are up. */
const volatile __u32 weir_mask;
const volatile __u32 weir_shift;
/* The class of each value. */
const volatile __u32 weir_classes[64];

static __always_inline int weir_is_tag(__be16 kind)
{
	return kind == bpf_htons(ETH_P_8021Q) || kind == bpf_htons(ETH_P_8021AD);
}

SEC("tc")
int weir_mark(struct __sk_buff *skb)
{
	__u32 value = 0, at = ETH_HLEN;
	__be16 word = 0;
	__u8 first[2];

	if (weir_by == WEIR_BY_MARK) {
		value = (skb->mark & weir_mask) >> weir_shift;
		return value < 64 ? weir_classes[value] : 0;
	}
	if (weir_by == WEIR_BY_PCP && skb->vlan_present)
		return weir_classes[skb->vlan_tci >> 13 & 7];
	if (bpf_skb_load_bytes_relative(skb, at - 2, &word, 2, BPF_HDR_START_MAC))
		return 0;
	for (int tags = 0; tags < 2 && weir_is_tag(word); tags++) {
		if (bpf_skb_load_bytes_relative(skb, at, first, 2, BPF_HDR_START_MAC))
			return 0;
		if (weir_by == WEIR_BY_PCP)
			return weir_classes[first[0] >> 5];
		at += 4;
		if (bpf_skb_load_bytes_relative(skb, at - 2, &word, 2, BPF_HDR_START_MAC))
			return 0;
	}
	if (weir_by == WEIR_BY_PCP || bpf_skb_load_bytes_relative(skb, at, first, 2, BPF_HDR_START_MAC))
		return 0;
	if (word == bpf_htons(ETH_P_IP))
		value = first[1] >> 2;
	else if (word == bpf_htons(ETH_P_IPV6))
		value = (first[0] & 0xf) << 2 | first[1] >> 6;
	return weir_classes[value & 63];
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
