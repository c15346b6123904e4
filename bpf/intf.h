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
 *  - the tag that the tap program leaves in the packet,
 *  - the value of its cgroup in the uplink's map,
 *  - the index of its counters, and
 *  - unless the agent says otherwise (struct weir_minors), the minor of its leaf
 *    class at the uplink.
 * It has 12 bits, so that a tag has room for the traffic class.
 */
enum weir_number {
	WEIR_NUMBER_NONE = 0,
	/* The host itself and everything that belongs to no known container. */
	WEIR_NUMBER_HOST = 1,
	/* ARP, neighbour discovery and what else keeps a link alive. */
	WEIR_NUMBER_CONTROL = 2,
	WEIR_NUMBER_FIRST = 16,
	WEIR_NUMBER_LAST = 0xffe,
	WEIR_NUMBERS = 0xfff,
};

/* What wake_ns of the classifier may say besides a time. */
enum weir_wake {
	WEIR_WAKE_ARMED = 1,
};

/* Traffic classes of a packet inside its container's share. */
enum weir_class {
	/* Not looked at, or there is nothing to tell it by. */
	WEIR_CLASS_NONE = 0,
	WEIR_CLASS_EF = 1,
	WEIR_CLASS_AF = 2,
	WEIR_CLASS_BE = 3,
	WEIR_CLASSES = 4,
	/* Of a container, not of a packet: each of its flows has its own. */
	WEIR_CLASS_AUTO = 4,
};

/*
 * The tag in queue_mapping and tc_index: the number, and above it the traffic class.
 * It lies above every receive queue a network card has: forwarded traffic carries
 * its receive queue + 1 in the same field. 0xffff is not a tag, the kernel keeps it
 * as "no queue" (include/linux/netdevice.h).
 */
enum weir_tag {
	WEIR_TAG_BASE = 0xc000,
	WEIR_TAG_MASK = 0x3fff,
	WEIR_TAG_NUMBER_MASK = 0xfff,
	WEIR_TAG_CLASS_SHIFT = 12,
};

/*
 * The tag in priority: 14 bits of magic, class and number, and four zero bits, which
 * queueing on the way takes for best effort (pfifo_fast, mqprio, the priority
 * bits of a VLAN). Its upper half is the major of no qdisc of Weir's.
 */
enum weir_priority {
	WEIR_PRIORITY_MAGIC = 0x3a57,
	WEIR_PRIORITY_MAGIC_SHIFT = 18,
	WEIR_PRIORITY_TAG_SHIFT = 4,
};

/*
 * What the uplink program leaves in tc_index for the devices below (below.bpf.c):
 * the packet's priority, and the priority code point of its VLAN tag. No tag of a
 * container's.
 */
enum weir_saved {
	WEIR_SAVED_BASE = 0xbf80,
	WEIR_SAVED_MASK = 0x7f,
	WEIR_SAVED_PCP_SHIFT = 4,
	WEIR_SAVED_PRIORITY_MASK = 0xf,
};

/*
 * A cgroup's level is its distance from the root of the hierarchy. The levels
 * of the cgroups that are assigned are packed into 64 bits, one byte each, the
 * deepest in the lowest byte; 0, the root, ends the list.
 */
enum weir_level {
	WEIR_LEVELS = 8,
	WEIR_LEVEL_BITS = 8,
};

/* The time that a byte takes, of the link or of a rate, is in nanoseconds, shifted so far. */
enum weir_link {
	WEIR_LINK_BYTE_SHIFT = 16,
};

/*
 * What the control class guarantees is divided among those who may put packets
 * into it, in eighths: none can take what another needs, and all of them
 * together do not overfill its queue. The budgets have places of their own below
 * WEIR_NUMBER_FIRST, where a container has its part of that of all containers.
 */
enum weir_control_budget {
	/* ARP and neighbour discovery that is forwarded, or of unknown origin. */
	WEIR_BUDGET_FOREIGN = 0,
	/* ARP and neighbour discovery of the host's own. */
	WEIR_BUDGET_NEIGHBOUR = 1,
	/* That of all containers together. */
	WEIR_BUDGET_CONTAINERS = 2,
	WEIR_BUDGET_DHCP = 3,
	WEIR_BUDGET_PROTOCOL = 4,

	WEIR_BUDGET_FOREIGN_EIGHTHS = 1,
	WEIR_BUDGET_NEIGHBOUR_EIGHTHS = 2,
	WEIR_BUDGET_CONTAINERS_EIGHTHS = 2,
	WEIR_BUDGET_DHCP_EIGHTHS = 1,
	WEIR_BUDGET_PROTOCOL_EIGHTHS = 2,
};

/*
 * What a container handed to the uplink, whether it was sent or dropped, and
 * whether its packets may go direct (uplink.bpf.c, 4).
 */
struct weir_activity {
	/* Also what direct packets take of the link besides their size. */
	__u64 classed_bytes;
	__u64 direct_bytes;
	/* For the choice of packets whose delay is measured (delay.h). */
	__u32 window;
	__u32 window_packets;
	/* Not 0: they may. Written by the agent. */
	__u32 may_go_direct;
	/* As many as direct_bytes were; wraps. */
	__u32 direct_packets;
};

/*
 * A histogram of delays counts packets. Delays are in units of 1024 ns. Below
 * WEIR_DELAY_STEPS each has a bucket of its own; from there on each doubling
 * is divided into so many. The last bucket takes what is longer (17 s).
 */
enum weir_delay {
	WEIR_DELAY_UNIT_SHIFT = 10,
	WEIR_DELAY_STEPS_SHIFT = 2,
	WEIR_DELAY_STEPS = 1 << WEIR_DELAY_STEPS_SHIFT,
	WEIR_DELAY_BUCKETS = 92,
};

struct weir_delays {
	__u32 packets[WEIR_DELAY_BUCKETS];
};

/*
 * Into which classes of the scheduler a container's packets go. Written by the
 * agent.
 */
struct weir_minors {
	/*
	 * By enum weir_class. 0: as packets without a traffic class; of those 0 is
	 * the container's number.
	 */
	__u16 minors[WEIR_CLASSES];
	/* Not 0: the traffic class of all its packets, or WEIR_CLASS_AUTO. */
	__u32 traffic_class;
	/* Not 0: the DSCP of its packets says as which class they were served. */
	__u32 mark_dscp;
	/* The rate that EF is held to: a byte in that time (WEIR_LINK_BYTE_SHIFT); 0: none. */
	__u64 ef_byte_shifted_ns;
};

/* How many flows of a container are told apart where its EF is held to a rate. */
#define WEIR_EF_FLOWS 16

/*
 * What packets of a container with classes there were, by enum weir_class, as they
 * were served: EF that was too much counts as BE. And what its EF has used.
 */
struct weir_class_activity {
	__u64 bytes[WEIR_CLASSES];
	__u64 packets[WEIR_CLASSES];
	/* EF that went to BE, which it is counted in as well. */
	__u64 ef_excess_bytes;
	/* As control_due of uplink.bpf.c. */
	__u64 ef_due;
	/* By hash of a flow, until when it is BE: milliseconds of bpf_ktime_get_ns. */
	__u32 ef_excess_until_ms[WEIR_EF_FLOWS];
};

/*
 * A flow's addresses and ports, in network order, the lesser side first; IPv4's
 * address is in the first word. Of fragments the ports are their ID.
 */
struct weir_tuple {
	__u32 a[4];
	__u32 b[4];
	__u16 port_a;
	__u16 port_b;
	__u8 proto;
	__u8 family; /* 4 or 6 */
	__u8 kind; /* enum weir_flow_kind */
	__u8 unused;
};

enum weir_flow_kind {
	WEIR_FLOW_WHOLE = 0,
	/*
	 * Not a flow: what later fragments of a packet of one are known by. bytes[0] is
	 * the flow's hash.
	 */
	WEIR_FLOW_FRAGMENTS = 1,
};

enum weir_flow_limit {
	/* Packets with payload that the second stage looks at. */
	WEIR_PAYLOADS = 6,
	/* Flows in a bucket. */
	WEIR_WAYS = 8,
	/* What a classifier may have (internal/apps, compact.go). */
	WEIR_MAX_NODES = 16384,
	WEIR_MAX_TREES = 8,
	WEIR_MAX_DEPTH = 32,
	WEIR_MAX_TYPES = 16,
	/*
	 * Words of features that a node may test: the first 16 by code, the others
	 * by code - 16. From there on: a leaf.
	 */
	WEIR_WORDS = 48,
	/* TCP's and UDP's. */
	WEIR_PORTS = 2 << 16,
};

/* What the EF policer says of a flow (police.h). */
enum weir_policer {
	/* Not yet looked at. */
	WEIR_POLICER_NEW = 0,
	WEIR_POLICER_CONFORMS = 1,
	/* It has overfilled a bucket: bulk, so BE. */
	WEIR_POLICER_BULK = 2,
	/* The verdict was too uncertain for its class: BE. */
	WEIR_POLICER_REFUSED = 3,
};

/* How much a flow of EF has sent lately: two leaky buckets, in bytes. */
struct weir_load {
	/* Up to when both have drained; as in weir_bucket. */
	__u32 drained_ms;
	/* Each packet weighs its bytes times the square of its part of a full one. */
	__u32 large;
	/* All bytes. */
	__u32 all;
	/* Bytes since both were empty, until it was bulk. */
	__u32 run_bytes;
};

/* What is known of a flow. */
struct weir_flow {
	struct weir_tuple tuple;
	/* By side: 0 the initiator, 1 the responder. Packets as the link has them. */
	__u64 bytes[2];
	__u32 packets[2];
	/* Milliseconds as in weir_bucket. */
	__u32 began_ms;
	/* Of the initiator's SYN and first packet; words of features. */
	__u16 mss, window, wscale, ttl;
	__u8 syn;
	__u8 initiator_is_b;
	/* A FIN or RST was seen. */
	__u8 closing;
	/* The verdict: enum weir_class, application type, stage that gave it or 0. */
	__u8 traffic_class;
	__u8 type;
	__u8 stage;
	/* Packets with payload so far, up to WEIR_PAYLOADS; bit i: of the responder. */
	__u8 payloads;
	__u8 responders;
	/* In 65535ths. */
	__u16 type_confidence, level_confidence;
	union {
		/* After the first WEIR_PAYLOADS. */
		struct weir_load load;
		/* Of these; the last two places are never used. */
		__u16 lengths[WEIR_PAYLOADS + 2];
	};
	/* Not 0: the class that the DSCP of its last packet asked for, and got. */
	__u8 dscp_class;
	__u8 policer; /* enum weir_policer */
	/* How long it took to send load.run_bytes; stops at its largest value. */
	__u16 run_ms;
	/* At the uplink: how many packets were looked at, and their delays together. */
	__u32 delay_packets;
	__u64 delay_ns;
};

/* What the tag of a place in a bucket says: 0: it is free. */
enum weir_flow_tag {
	/* Being filled. */
	WEIR_FLOW_TAG_BUSY = 1,
	/* There is a flow; the upper 30 bits are its hash's. */
	WEIR_FLOW_TAG_HELD = 2,
	/* With it: a peer began the flow, and the container has not answered. */
	WEIR_FLOW_TAG_FOREIGN = 1,
};

struct weir_bucket {
	/* Parts of the flows' hashes: enum weir_flow_tag. */
	__u32 tags[WEIR_WAYS];
	/* When each was last seen: the monotonic clock's nanoseconds >> 20; wraps. */
	__u32 seen_ms[WEIR_WAYS];
	struct weir_flow flows[WEIR_WAYS];
};

enum weir_flow_key {
	/* One for each 32 bits of a tuple, and one more. */
	WEIR_FLOW_KEYS = 11,
};

/*
 * Whose flows those are that the link sees, by the tuple after NAT: WEIR_WAYS of them,
 * as in weir_bucket, and without their tag's FOREIGN.
 */
struct weir_sender_bucket {
	__u32 tags[WEIR_WAYS];
	__u32 seen_ms[WEIR_WAYS];
	/* The containers' numbers, and the packets' enum weir_class. */
	__u16 numbers[WEIR_WAYS];
	__u8 classes[WEIR_WAYS];
	__u64 unused;
	struct weir_tuple tuples[WEIR_WAYS];
};

/* Of a container's table; with number WEIR_NUMBER_NONE of that of senders. */
struct weir_flow_config {
	/* Random numbers, unknown outside the host. */
	__u64 keys[WEIR_FLOW_KEYS];
	/* Number of buckets, a power of two, - 1. */
	__u32 bucket_mask;
	/* Not 0: a packet's class is what its DSCP says, if that says one. */
	__u32 trust_dscp;
	/* As in weir_bucket: since when the number is its container's. */
	__u32 since_ms;
	__u32 unused;
};

struct weir_flow_counts {
	__u64 created;
	/* Of these, how many took the place of another. */
	__u64 evicted;
	/* Got no place: several processors at one bucket at once. */
	__u64 lost;
	/* Packets of no flow: neither TCP nor UDP, or damaged. */
	__u64 unknown;
	/* Packets that others sent and that found only the container's flows. */
	__u64 refused;
};

/*
 * One node of a tree: docs/classifier.md has the meaning; but the feature is its place
 * among the words, or 255 for a leaf.
 */
struct weir_node {
	__u8 feature, type, level, unused;
	__u32 threshold;
	__u16 left, right;
	__u16 type_confidence, level_confidence;
};

struct weir_classifier {
	__u16 first_roots[WEIR_MAX_TREES];
	__u16 second_roots[WEIR_MAX_TREES];
	__u32 first_trees, second_trees;
	/* The least confidence of a level, in 65535ths. */
	__u32 min_confidence;
	__u32 unused;
	struct weir_node nodes[WEIR_MAX_NODES];
	__u8 ports[WEIR_PORTS];
};

/* A cgroup whose sockets' packets are a container's. */
struct weir_cgroup {
	__u32 number;
	__u32 level;
};

/*
 * A port at which a process of the host's own answers for a container: the kernel
 * translates no IPv6 address to an IPv4 one, so Docker's docker-proxy passes on what
 * comes to a published port over IPv6.
 */
struct weir_published {
	/* AF_INET or AF_INET6, as the socket has it. */
	__u16 family;
	__u16 port;
	/* IPPROTO_TCP, IPPROTO_UDP. */
	__u32 protocol;
};

/*
 * A device of a container's that received frames name: of macvlan in the frame itself, in
 * an overlay network in the frame that a VXLAN packet carries.
 */
struct weir_destination {
	__u8 mac[6];
	/* Of VXLAN, in network order: UDP's port, 0 for none, and the network identifier. */
	__u16 vxlan_port;
	__u32 vni;
};

/* Whose a destination is. Of the host's own: the device that routes what comes without a VLAN tag, or 0. */
struct weir_receiver {
	__u32 number;
	__u32 ifindex;
};

#endif
