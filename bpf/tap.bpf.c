// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Assigns a packet to its container, at a tap: a place where all packets of one
 * container pass, and no others.
 *
 * Problem: at the uplink a packet from behind NAT no longer says which
 * container it came from: addresses are rewritten and the socket is gone.
 *
 * Method: the container's number is written into the packet where it can only
 * have come from one container, into a field that reaches the egress hook of
 * the uplink, where uplink.bpf.c reads it.
 *
 *  - Bridge: the host end of the container's veth (ingress), and
 *    queue_mapping, which crosses bridging, routing and NAT untouched. mark
 *    would do as well but belongs to others (kube-proxy, Calico, Tailscale).
 *    Where the host takes a packet apart, for an uplink of a smaller MTU or
 *    because NAT had put its fragments together, the fragments are new packets
 *    that do not get queue_mapping from the old one. IPv6 gives them priority,
 *    which routing leaves alone there (net/ipv6/ip6_output.c, ip6_forward,
 *    ip6_copy_metadata). Of IPv4 routing overwrites that, and what is left is
 *    tc_index (net/ipv4/ip_output.c, ip_copy_metadata). So the number goes into
 *    these as well. The same two are left where routing leads through a device that
 *    hands the packet on to the uplink, such as the bridge that the uplink is a port
 *    of: that device's choice of a queue overwrites queue_mapping.
 *  - VXLAN overlay: the host end of the veth as well, which is in a namespace
 *    of the overlay's. Encapsulation clears mark and the device's choice of a
 *    queue overwrites queue_mapping; priority stays (net/ipv4/ip_tunnel_core.c,
 *    iptunnel_xmit), also through ESP.
 *  - macvlan, ipvlan: the device in the container (egress), which has no other
 *    end. From here to the uplink nothing but the queue is chosen, so priority
 *    stays here too.
 *
 * What a container put into these fields before is overwritten: a container
 * behind a veth cannot pass for another, with any capability. In macvlan and
 * ipvlan mode the tap is in the container's reach, so it is believed only where
 * nothing better is known: see uplink.bpf.c and origin.bpf.c.
 *
 * The number is a constant of the program, one program for each tap: no map,
 * no look-up, and nothing to clean up when the device goes.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "tag.h"

/* The container's number, WEIR_NUMBER_FIRST to WEIR_NUMBER_LAST. */
const volatile __u32 container_number = WEIR_NUMBER_NONE;
/* Not 0: write priority as well, also of packets other than IPv6. */
const volatile __u32 tag_priority = 0;

SEC("tc")
int weir_tap(struct __sk_buff *skb)
{
	weir_tag(skb, container_number, WEIR_CLASS_NONE, tag_priority);

	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
