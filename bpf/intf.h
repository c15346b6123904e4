/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the data path and the agent agree on. The Go side of every type and
 * constant here is generated from this file (bpf2go).
 */
#ifndef WEIR_INTF_H
#define WEIR_INTF_H

#include <linux/types.h>

/*
 * A container's number is its identity in the data path. It is at once
 *  - the tag that the veth program leaves in skb->queue_mapping,
 *  - the index of its counters, and
 *  - the minor of its leaf class at the uplink.
 */
enum weir_number {
	WEIR_NUMBER_NONE = 0,
	/* The host itself and everything that belongs to no known container. */
	WEIR_NUMBER_HOST = 1,
	/* ARP, neighbour discovery and what else keeps a link alive. */
	WEIR_NUMBER_CONTROL = 2,
	WEIR_NUMBER_FIRST = 16,
	WEIR_NUMBER_LAST = 0x3ffe,
	WEIR_NUMBERS = 0x3fff,
};

/*
 * Tags lie above every receive queue a network card has: forwarded traffic
 * carries its receive queue + 1 in the same field. 0xffff is not a tag, the
 * kernel keeps it as "no queue" (include/linux/netdevice.h).
 */
enum weir_tag {
	WEIR_TAG_BASE = 0xc000,
	WEIR_TAG_MASK = 0x3fff,
};

/* What a container handed to the uplink, whether it was sent or dropped. */
struct weir_activity {
	__u64 offered_bytes;
};

#endif
