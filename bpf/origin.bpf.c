// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Watches from which network namespace a packet comes to the uplink.
 *
 * 1. Problem. A container with a macvlan or ipvlan device and CAP_NET_ADMIN
 *    has the tap in its reach, and what it forwards from a namespace within has
 *    no socket. Nothing in such a packet tells it from one that the host
 *    forwards.
 * 2. Method. From the container's device to the egress hook of the uplink it
 *    is one chain of calls, on one processor with softirqs off
 *    (net/core/dev.c, xmit_one): tracepoint net_dev_start_xmit, the device's
 *    transmit function, which calls that of the device below, and so on to the
 *    uplink, then tracepoint net_dev_xmit. So the namespace of the device is
 *    noted for the processor at the first, and struck out at the last. Devices
 *    of the host's own namespace, the uplink among them, leave the note alone.
 *    A veth ends the chain: it queues the packet, for softirqs.
 * 3. Reach. Tracepoints are the kernel's, not the device's: who owns the
 *    namespace can neither remove nor avoid them. What passes them by has a
 *    socket, whose cgroup is looked at first (packet and AF_XDP sockets that
 *    ask for it), or needs more than CAP_NET_ADMIN: to redirect by generic XDP
 *    takes CAP_BPF, and pktgen a module that the host has to load.
 *    Two things are sent on later, after the chain. Multicast of ipvlan in mode
 *    L2 is, by a kernel thread and as the same packet (ipvlan_multicast_enqueue,
 *    ipvlan_process_multicast): its address is noted with the namespace. What a
 *    qdisc between the two devices has queued, such as one that a user gave to
 *    a VLAN, comes without an origin.
 * 4. End. With the process that attached them the programs are gone, perhaps in
 *    the middle of a chain. Its note is not believed any more a few ticks later
 *    (origin.h).
 * 5. Cost. All devices pass these tracepoints, so the first test is for the
 *    namespace, and most of the cost, about 0.1 us each (BenchmarkOrigins), is
 *    that of getting there. So they are attached only while there is a
 *    container to be watched.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "netdev.h"
#include "origin.h"

/* The inode of the network namespace of the uplinks. */
const volatile __u32 uplink_netns = 0;

/* ipvlan passes on later what it sends to several. Its kinds are ipvlan, ipvtap. */
static __always_inline int is_deferred(const struct sk_buff *skb,
				       const struct net_device *dev)
{
	__u8 destination, kind[3];

	if (bpf_probe_read_kernel(&destination, sizeof(destination), skb->data) ||
	    !(destination & 1)) /* Ethernet's bit for groups */
		return 0;
	return !bpf_probe_read_kernel(kind, sizeof(kind), dev->rtnl_link_ops->kind) &&
	       kind[0] == 'i' && kind[1] == 'p' && kind[2] == 'v';
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(weir_origin_start, const struct sk_buff *skb,
	     const struct net_device *dev)
{
	__u32 netns = weir_netns(dev);
	struct weir_origin *origin;

	if (netns == uplink_netns)
		return 0;
	origin = weir_origin();
	if (!origin)
		return 0;
	origin->device = (__u64)dev;
	origin->since_ticks = bpf_jiffies64();
	origin->netns = netns;
	if (is_deferred(skb, dev)) {
		__u64 address = (__u64)skb;

		bpf_map_update_elem(&deferred, &address, &netns, BPF_ANY);
	}
	return 0;
}

/* The packet may be gone by now. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(weir_origin_end, const struct sk_buff *skb, int rc,
	     const struct net_device *dev)
{
	struct weir_origin *origin;

	if (weir_netns(dev) == uplink_netns)
		return 0;
	origin = weir_origin();
	if (origin && origin->device == (__u64)dev)
		origin->device = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
