// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Keeps a host-mode container's packets from passing the uplink's queues by.
 *
 * Problem: engines give containers CAP_NET_RAW. In the host's network a packet socket with
 * PACKET_QDISC_BYPASS hands its packets to the driver (net/packet/af_packet.c,
 * packet_xmit), and so does an AF_XDP socket (net/xdp/xsk.c, xsk_generic_xmit): past the
 * hook of the uplink program and past all queues.
 *
 * Method: at the container's cgroup, both ways to ask for that end with EPERM. A socket
 * belongs to the cgroup it was made in, so passing it on changes nothing, and io_uring
 * sets options by the same way. Packet sockets without the option are queued as all
 * others, by their cgroup.
 *
 * Limits: what a socket was allowed before the program came stays. A packet socket may
 * also be bound to a device below the uplink. The agent says both.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <bpf/bpf_helpers.h>

#define SOL_PACKET 263
#define SOL_XDP 283

SEC("cgroup/setsockopt")
int weir_bypass(struct bpf_sockopt *ctx)
{
	/* A longer value than the kernel shows to programs: let it go on with the caller's. Others
	 * stay as they are, as another program may have changed them. */
	if (ctx->optlen > 4096)
		ctx->optlen = 0;
	return !(ctx->level == SOL_PACKET && ctx->optname == PACKET_QDISC_BYPASS) &&
	       !(ctx->level == SOL_XDP && ctx->optname == XDP_TX_RING);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
