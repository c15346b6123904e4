// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Clears a forged tag, at the ingress hook of the bridges that containers are ports of,
 * and of the VLANs on these.
 *
 * Problem: tc_index is all that an IPv4 packet keeps of its tag which the host takes
 * apart, or sends through a bridge that the uplink is a port of (tap.bpf.c). A tap overwrites it; but where there is none, as in a network namespace
 * that no engine knows, any filter may write it (net/core/dev.c, tc_run: the minor of
 * the filter's class), and crossing a veth does not clear it (net/core/skbuff.c,
 * skb_scrub_packet).
 *
 * Method: a tap writes the tag into queue_mapping as well. That does not come out of
 * another namespace: the device that sends there writes its choice of a queue into it
 * (net/core/dev.c, netdev_core_pick_tx). So a tag in tc_index that is not in
 * queue_mapping, too, is no tap's. What a bridge's ports send to the host or
 * through it passes here one by one, or put together by netfilter, and then as its
 * first fragment was. The uplink believes tc_index of packets that come in by a bridge
 * with this program, and by taps (uplink.bpf.c, index_from).
 *
 * It is at the bridge and not at ports without a tap: a port that comes while the agent
 * does not look, or not run, would be without the program.
 *
 * Limits: a namespace whose processes may load BPF programs (CAP_BPF of the host's)
 * can keep its own queue_mapping, with a program that sends past its device's choice
 * (bpf_redirect_peer).
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "tag.h"

SEC("tc")
int weir_bridge(struct __sk_buff *skb)
{
	__u32 index = skb->tc_index, tag = skb->queue_mapping;

	if (index != tag && weir_is_tag(index))
		skb->tc_index = 0;
	/* A VLAN's device has overwritten it (net/8021q/vlan_core.c, vlan_do_receive). */
	if (weir_is_tag(tag) && skb->protocol == bpf_htons(ETH_P_IPV6))
		weir_tag_priority(skb, tag & WEIR_TAG_MASK);
	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
