// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gives a packet its priority back, at the egress hook of the devices below an
 * uplink that is a VLAN, a bond or a team.
 *
 * Problem: the uplink program puts the class into skb->priority. HTB leaves it
 * there, and what comes after takes it for a priority: the VLAN looks it up in its
 * egress map as it sends (net/8021q/vlan_dev.c, vlan_dev_hard_start_xmit) and finds
 * nothing, so the frame has no priority in its tag (PCP); bands of queues at the
 * device below are chosen by the lowest bits of the container's number.
 *
 * Method: the uplink program leaves the priority, and the PCP that the map has for
 * it, in tc_index (enum weir_saved). No program runs between an uplink's own queues
 * and its driver: what is below a card that is the uplink itself sees the class.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "tag.h"

SEC("tc")
int weir_below(struct __sk_buff *skb)
{
	const __u32 pcp_shift = 13;
	__u32 saved = skb->tc_index;
	__u32 pcp;

	/* Of packets that do not come from the uplink, as clear.bpf.c. */
	weir_clear_tag(skb);
	if ((saved & ~(__u32)WEIR_SAVED_MASK) != WEIR_SAVED_BASE)
		return TC_ACT_UNSPEC;
	pcp = (saved & WEIR_SAVED_MASK) >> WEIR_SAVED_PCP_SHIFT;
	skb->tc_index = 0;
	skb->priority = saved & WEIR_SAVED_PRIORITY_MASK;
	if (pcp && skb->vlan_present) {
		__u16 tci = (skb->vlan_tci & ((1 << pcp_shift) - 1)) | pcp << pcp_shift;
		__u16 protocol = skb->vlan_proto;

		/* The tag is beside the packet, not in it: nothing is moved. */
		if (!bpf_skb_vlan_pop(skb))
			bpf_skb_vlan_push(skb, protocol, tci);
	}
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
