// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Clears the tag in queue_mapping, at the egress hook of devices with several transmit
 * queues that are no uplinks.
 *
 * Problem: forwarded packets have their receive queue in that field, and a device that
 * has fewer transmit queues takes its number off until it fits, in a loop
 * (net/core/dev.c, skb_tx_hash; drivers/net/bonding/bond_main.c, bond_select_queue). A
 * tag is beyond all receive queues, so of a packet that leaves beside the uplink that
 * took 10,000 to 25,000 rounds: 3 to 7 microseconds.
 *
 * Method: this hook comes before the choice of a queue (net/core/dev.c,
 * __dev_queue_xmit), which overwrites the field: no tag goes further than here anyway.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "tag.h"

SEC("tc")
int weir_clear(struct __sk_buff *skb)
{
	weir_clear_tag(skb);
	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
