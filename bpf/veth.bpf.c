// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ties a packet to its container, at the host end of the container's veth.
 *
 * Problem: at the uplink a packet from behind NAT no longer says which
 * container it came from: addresses are rewritten and the socket is gone.
 *
 * Method: where the packet enters the host it can only have come from one
 * container, so the container's number is written into queue_mapping. That
 * field crosses bridging, routing and NAT untouched up to the egress hook of
 * the uplink, where uplink.bpf.c reads and clears it. skb->mark would do as
 * well but belongs to others (kube-proxy, Calico, Tailscale). Writing it here
 * also overwrites whatever a container with CAP_NET_ADMIN put there.
 *
 * The number is a constant of the program, one program for each veth: no map,
 * no look-up, and nothing to clean up when the veth goes.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

/* The container's number, WEIR_NUMBER_FIRST to WEIR_NUMBER_LAST. */
const volatile __u32 container_number = WEIR_NUMBER_NONE;

SEC("tc")
int weir_veth(struct __sk_buff *skb)
{
	skb->queue_mapping = WEIR_TAG_BASE | (container_number & WEIR_TAG_MASK);

	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
