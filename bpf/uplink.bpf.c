// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Puts every packet into its container's class, or one of its classes, at the
 * egress hook of the uplink, before the scheduler.
 *
 *  1. Whose packet is it? In this order:
 *     a. the container whose cgroup, or one above it, its socket belongs to:
 *        host, macvlan and ipvlan mode;
 *     b. the container whose network namespace it comes from (origin.bpf.c):
 *        macvlan and ipvlan;
 *     c. the tag in queue_mapping, or where that is lost in tc_index
 *        (tap.bpf.c, bridge.bpf.c): bridge mode;
 *     d. the tag in priority (tap.bpf.c): overlay; IPv6 fragments; macvlan and
 *        ipvlan where origins are not watched;
 *     e. the same tag in the hash of a packet that the kernel itself made: what a
 *        tunnel of the host's sent for a container (weir_carry);
 *     f. the container that published the port from which a process of the host's
 *        answers for it: a proxy;
 *     g. the host.
 *    A tag is only looked at in packets of the host's own namespace and of
 *    those that the agent says share it, such as an overlay's. A namespace of
 *    which it has said nothing yet is of unknown origin. Its packets are the host's,
 *    but a narrow limit holds for all of those together, and what is above it
 *    is dropped: it may be a container's way around its share.
 *  2. Is it control traffic? Then it goes to a class of its own, which is
 *     served first. Each of those who may use it has a budget there, ARP and
 *     neighbour discovery of the host's own apart from all others, and each
 *     container: none can starve the others there, nor get around a share.
 *     What is beyond a budget is treated as data of who sent it.
 *  3. Which class of the scheduler? A container has one, or one for each traffic
 *     class of its packets: what the tap found, or what all of its packets are said
 *     to be. EF that is too much competes as BE (ef_within).
 *     The class goes into skb->priority, which HTB takes as the class without
 *     running any filter (net/sched/sch_htb.c, htb_classify). Where devices below
 *     would read it, what was there is saved for them (below.bpf.c).
 *  4. Unless it finds the uplink idle: then there is nothing to decide, and it
 *     takes the direct queue of the outermost HTB, past the classes and the bucket
 *     that holds them to the link's rate (internal/datapath/htb/plan.go). Neither knows
 *     of such packets. So
 *     - no packet may wait at the uplink: then one that comes while a direct packet
 *       is there goes through its class, no more than one of each processor is ever
 *       ahead of the classes, and of one flow none overtakes another. Nor does a
 *       device that sends less than its rate says make a FIFO of the uplink.
 *     - the link has to be done with all that was offered before, by a clock
 *       that goes a little slower than its rate: all together stay below that.
 *     - it is no larger than what the bucket would leave whole.
 *     - its container has no limit of its own: only its class holds it to that.
 *  5. What was offered is counted for each container: the control loop needs
 *     the demand, which a queue that drops cannot tell. While no member is active
 *     and the host does not compete the loop rarely looks; the next packet wakes it (wake).
 *
 * Cost. Routing takes a packet's socket away (net/ipv4/ip_input.c,
 * ip_rcv_core), so bridge mode never gets to the cgroup: a load and a branch,
 * and not even these while no cgroup is assigned. Otherwise there is a helper call
 * and a look-up for each level at which there is an assigned cgroup, which is one
 * for each way in which engines name them.
 *
 * Packets without a full socket. A SYN-ACK belongs to its listener, which the
 * helper finds through the request; not so while SYN cookies are sent. Answers
 * from TIME_WAIT, resets and ICMP errors are the kernel's own: they have a
 * socket of the namespace, in no container's cgroup. In macvlan and ipvlan
 * mode these come from its namespace all the same (b, d); in host mode they are
 * the host's.
 *
 * Who can pass for another?
 *  - Bridge, overlay: no container by its own devices, also from namespaces made
 *    inside: all that leaves passes the tap, which is out of reach. What was
 *    in priority before is cleared with the crossing (net/core/dev.c,
 *    ____dev_forward_skb), what was in queue_mapping is overwritten. With
 *    CAP_NET_ADMIN and no user namespace of its own it can make a macvlan or VLAN
 *    on a device of the namespace at the other end of its veth (IFLA_LINK_NETNSID;
 *    net/core/rtnetlink.c, rtnl_newlink): packets of its sockets go by its cgroup
 *    then, what it forwards is the host's until the agent has seen the device.
 *  - Host mode: a socket belongs to the cgroup it was made in. Fields of the
 *    packet (SO_PRIORITY needs no more than CAP_NET_RAW) are not looked at when
 *    its cgroup is assigned. bypass.bpf.c keeps its packet sockets from going past
 *    this hook. With CAP_NET_ADMIN the container owns the network of
 *    the host, this program included; nothing can be held against that.
 *  - macvlan, ipvlan without CAP_NET_ADMIN: none; the tap overwrites.
 *  - macvlan, ipvlan with it: the container can take its tap away, or tag
 *    behind it (skbedit, a qdisc's filters), forward from another device
 *    inside, or make one more device on the uplink, here or in a namespace
 *    within. Packets of its sockets, raw and packet sockets included, go by
 *    their cgroup, all others by the namespace they come from, and it can
 *    change neither. From a namespace without a known holder it can
 *    have what packets of unknown origin have. While the agent does not run none are watched:
 *    then what it forwards goes by its tag, and can end in the host's
 *    class or in another container's, as on a kernel that cannot watch. The
 *    engines do not give CAP_NET_ADMIN unless asked to.
 *
 * Where delays are measured, some packets are stamped with the time (delay.h).
 *
 * queue_mapping is cleared, or it would choose the card's transmit queue (clear.bpf.c).
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "control.h"
#include "crossing.h"
#include "delay.h"
#include "dscp.h"
#include "intf.h"
#include "known.h"
#include "netdev.h"
#include "origin.h"
#include "sender.h"
#include "tag.h"

/*
 * Majors of the scheduler's qdiscs, in the upper half of a priority: the one with
 * the containers' classes, and the one with the direct queue.
 */
const volatile __u32 class_major = 0;
const volatile __u32 direct_major = 0;

/* Of the device's frames: 14 for Ethernet, 0 where packets have no such header. */
const volatile __u32 link_header_bytes = ETH_HLEN;

/*
 * Not 0: there are devices below that get the packet's priority back (below.bpf.c),
 * and the priority code points of the VLAN's egress map, by priority.
 */
const volatile __u32 save_priority = 0;
const volatile __u8 vlan_pcps[WEIR_SAVED_PRIORITY_MASK + 1] = {};

/*
 * Not 0: the device is the IFB of an uplink, which gets what the uplink receives
 * (incoming.bpf.c).
 */
const volatile __u32 incoming = 0;

/* Not 0: note the sender of each flow (sender.h), for what comes back. Written by the agent. */
__u32 note_senders = 0;

/*
 * The levels at which there are assigned cgroups (enum weir_level). Written by the
 * agent.
 */
__u64 cgroup_levels = 0;

/* Not 0: stamp packets, the agent reads it. Written by the agent. */
__u32 stamping = 0;

/*
 * Not 0: origins are watched, and the rate of packets of unknown origin is one byte
 * in so many nanoseconds. Written by the agent.
 */
__u64 unknown_byte_ns = 0;

/*
 * Not 0: packets may go direct, and what a byte takes the link and a little more,
 * in nanoseconds shifted by WEIR_LINK_BYTE_SHIFT. Written by the agent.
 */
__u64 link_byte_shifted_ns = 0;

/*
 * Not 0: what each packet takes of the link besides its size, and at least that of
 * Ethernet's shortest frame. HTB counts as link_bytes does. Written by the agent.
 */
__u32 overhead_bytes = 0;

/* The largest packet that may go direct. Written by the agent. */
__u32 direct_max_bytes = 0;

/*
 * The rate that the control class guarantees is one byte in so many nanoseconds,
 * and so many containers share what is theirs of it. Written by the agent; 0: not
 * told yet.
 */
__u64 control_byte_ns = 0;
__u32 control_containers = 0;

/*
 * Mapped into the agent's memory: reading all counters takes no system call.
 * They are written here; the agent says who may go direct, and clears what went
 * so under a number that has no holder any more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_activity);
} activities SEC(".maps");

/* The assigned cgroups by ID. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u64);
	__type(value, struct weir_cgroup);
} cgroups SEC(".maps");

/*
 * Whose the packets of a network namespace are, by its inode; or
 * WEIR_NUMBER_NONE: judge them as those of the host's own. One map for all
 * uplinks, written by the agent only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, __u32);
} namespaces SEC(".maps");

/*
 * The network namespaces that are not in there and were seen. Entries are made
 * here, and taken out by the agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} unknown_netns SEC(".maps");

/* As control_due, for all packets of unknown origin together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unknown_due SEC(".maps");

/*
 * What has been used of the budgets for control traffic, by enum
 * weir_control_budget and container: the theoretical arrival time of the next
 * packet (gcra), by bpf_ktime_get_ns. Written here only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, __u64);
} control_due SEC(".maps");

/* The classes of the scheduler for a container's packets. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_minors);
} minors SEC(".maps");

/*
 * Written here only. The agent adds an entry before a container gets classes, and removes it
 * with the container: an array of all numbers would take 0.6 MB. Without an entry (an upgrade
 * may make the map anew) packets are not counted, and EF that has a rate is BE.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_class_activity);
} class_activity SEC(".maps");

/* When the link is done with all that was offered. Written here only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} link_due SEC(".maps");

/*
 * WEIR_WAKE_ARMED: the next packet wakes the agent. Then the time at which it came, by
 * bpf_ktime_get_ns. Armed by the agent. In a map of its own, as the agent writes the
 * other variables all at once.
 */
__u64 wake_ns SEC(".data.wake") = 0;

/*
 * What wakes the agent: one record, which says nothing, of each uplink that was armed.
 * One ring for all uplinks. The agent makes it of one page, which has up to 64 KB on ARM.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} wakeups SEC(".maps");

/* How many published ports there are. Written by the agent. */
__u32 published_ports = 0;

/*
 * Whose the ports are that containers publish at all addresses of the host's. No
 * other can have such a port there. Written by the agent only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * WEIR_NUMBERS);
	__type(key, struct weir_published);
	__type(value, __u32);
} published SEC(".maps");

/*
 * The devices of which tc_index is believed, by index: taps, which write
 * it, and bridges where a forged one is cleared (bridge.bpf.c). Written by the agent only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, __u32);
} index_from SEC(".maps");

/* Makes the constants of intf.h known to the Go side (BTF keeps what is used). */
const enum weir_number *weir_number_btf __attribute__((unused));
const enum weir_class *weir_class_btf __attribute__((unused));
const enum weir_tag *weir_tag_btf __attribute__((unused));
const enum weir_level *weir_level_btf __attribute__((unused));
const enum weir_link *weir_link_btf __attribute__((unused));
const enum weir_priority *weir_priority_btf __attribute__((unused));
const enum weir_saved *weir_saved_btf __attribute__((unused));
const enum weir_wake *weir_wake_btf __attribute__((unused));

/* The number of the innermost assigned cgroup that the packet's socket is in. */
static __always_inline __u32 number_of_cgroup(struct __sk_buff *skb)
{
	__u64 levels = cgroup_levels;
	int i;

	if (!levels || !skb->sk)
		return WEIR_NUMBER_NONE;
	for (i = 0; i < WEIR_LEVELS; i++) {
		int level = levels & ((1 << WEIR_LEVEL_BITS) - 1);
		struct weir_cgroup *cgroup;
		__u64 id;

		if (!level)
			break;
		levels >>= WEIR_LEVEL_BITS;
		id = bpf_skb_ancestor_cgroup_id(skb, level);
		if (!id) /* not so deep, or no full socket */
			continue;
		cgroup = bpf_map_lookup_elem(&cgroups, &id);
		if (cgroup)
			return cgroup->number;
	}
	return WEIR_NUMBER_NONE;
}

/* Beside a tag: the packet passed no tap, and is still as it was made. */
#define UNTAPPED (1 << 16)

/* Beside a tag: the packet is a tunnel's, whose flow is not the container's. */
#define CARRIED (1 << 17)

static __always_inline int is_priority_tag(__u32 value)
{
	return value >> WEIR_PRIORITY_MAGIC_SHIFT == WEIR_PRIORITY_MAGIC;
}

/* What a tag in a hash leaves of the hash of the flow, by which queues tell flows apart. */
#define HASH_LEFT ((1 << WEIR_PRIORITY_TAG_SHIFT) - 1)

/*
 * The traffic class in the tag in priority, shifted as in a tag. Whose packet it is
 * was found out otherwise, so the tag only counts if it says the same.
 */
static __always_inline __u32 class_in_priority(struct __sk_buff *skb, __u32 number)
{
	__u32 tag = skb->priority;

	if (!is_priority_tag(tag))
		return UNTAPPED;
	tag >>= WEIR_PRIORITY_TAG_SHIFT;
	if ((tag & WEIR_TAG_NUMBER_MASK) != number)
		return UNTAPPED;
	return tag & WEIR_TAG_MASK & ~(__u32)WEIR_TAG_NUMBER_MASK;
}

/*
 * The namespace that a packet which is sent later than its device was asked to
 * comes from. ipvlan says on such a packet that it is for several, and nothing
 * else does that has not received it from a device.
 */
static __always_inline __u32 netns_of_deferred(struct __sk_buff *skb)
{
	__u64 address = (__u64)skb; /* of the packet itself, in the kernel */
	__u32 *netns, inode;

	if ((skb->pkt_type != PACKET_BROADCAST && skb->pkt_type != PACKET_MULTICAST) ||
	    skb->ingress_ifindex)
		return 0;
	netns = bpf_map_lookup_elem(&deferred, &address);
	if (!netns)
		return 0;
	inode = *netns;
	bpf_map_delete_elem(&deferred, &address);
	return inode;
}

/* The namespace that the packet comes from; 0 for the host's own. */
static __always_inline __u32 netns_of(struct __sk_buff *skb)
{
	struct weir_origin *origin;

	if (!unknown_byte_ns)
		return 0;
	origin = weir_origin();
	if (!origin || !origin->device ||
	    bpf_jiffies64() - origin->since_ticks > WEIR_ORIGIN_TICKS)
		return netns_of_deferred(skb);
	return origin->netns;
}

/* The number of a namespace; notes down one that is not known. */
static __always_inline __u32 *number_of_netns(__u32 netns)
{
	__u32 *number = bpf_map_lookup_elem(&namespaces, &netns);

	if (!number && !bpf_map_lookup_elem(&unknown_netns, &netns))
		/* Where there is no room now, there is after the next look. */
		bpf_map_update_elem(&unknown_netns, &netns, &netns, BPF_NOEXIST);
	return number;
}

/*
 * The tag in tc_index of a packet that came in where no other can be in there; 0 if it
 * is none. It is what fragments have that the host makes, and packets that another
 * device chose a queue for on the way to the uplink, such as the bridge that the uplink
 * is a port of. Of other packets tc_index is not looked at: it crosses a veth, and a
 * namespace that no engine knows may have written it.
 */
static __always_inline __u32 tag_in_index(struct __sk_buff *skb)
{
	__u32 tag = skb->tc_index, device = skb->ingress_ifindex;

	if (!weir_is_tag(tag) || !device)
		return 0;
	return bpf_map_lookup_elem(&index_from, &device) ? tag : 0;
}

/* Whose a packet is that no container sent; it passed no tap. */
static __always_inline __u32 number_of_published(struct __sk_buff *skb)
{
	struct weir_published key = { .protocol = IPPROTO_TCP };
	struct bpf_sock *sk = skb->sk, *full;
	__u32 *number;

	if (!published_ports || !sk || skb->ingress_ifindex)
		return WEIR_NUMBER_HOST;
	key.family = sk->family;
	key.port = sk->src_port;
	full = bpf_sk_fullsock(sk); /* one that is not is of TCP */
	if (full)
		key.protocol = full->protocol;
	number = bpf_map_lookup_elem(&published, &key);
	return number ? *number | UNTAPPED : WEIR_NUMBER_HOST;
}

/*
 * Whose packet it is, WEIR_NUMBER_NONE if its origin is unknown, and the traffic class
 * that its tap gave it, as in a tag; clears the tag in queue_mapping.
 */
static __always_inline __u32 tag_of(struct __sk_buff *skb)
{
	__u32 number = number_of_cgroup(skb);
	__u32 tag = skb->queue_mapping;
	__u32 netns, carried = 0;

	if (weir_is_tag(tag))
		skb->queue_mapping = 0;
	else
		tag = tag_in_index(skb);
	if (number)
		return number | class_in_priority(skb, number);
	netns = netns_of(skb);
	if (netns) {
		__u32 *known = number_of_netns(netns);

		if (!known)
			return WEIR_NUMBER_NONE;
		if (*known)
			return *known | class_in_priority(skb, *known);
	}
	if (!weir_is_tag(tag) || !skb->ingress_ifindex) {
		tag = skb->priority;
		if (!is_priority_tag(tag) && !skb->sk && !skb->ingress_ifindex &&
		    is_priority_tag(skb->hash)) {
			tag = skb->hash;
			carried = CARRIED;
		}
		if (!is_priority_tag(tag))
			return number_of_published(skb);
		tag >>= WEIR_PRIORITY_TAG_SHIFT;
	}
	/* Also for a forged tag that names no container, but a class of ours. */
	return (tag & WEIR_TAG_NUMBER_MASK) < WEIR_NUMBER_FIRST ? WEIR_NUMBER_HOST :
								    (tag & WEIR_TAG_MASK) | carried;
}

/* What a packet takes of the rates of the link and its classes. */
static __always_inline __u32 link_bytes(__u32 bytes)
{
	const __u32 shortest_frame_bytes = 60;

	if (!overhead_bytes)
		return bytes;
	return (bytes > shortest_frame_bytes ? bytes : shortest_frame_bytes) + overhead_bytes;
}

/*
 * Generic cell rate algorithm (ITU-T I.371, virtual scheduling). *due is when all
 * that came before has been sent at the rate of the budget. A packet that takes
 * cost_ns at that rate conforms if that is no later than tolerance_ns from now,
 * and is added then. Returns how far in the future it is. Two processors at once
 * may forget one packet, no worse.
 */
static __always_inline __u64 gcra(__u64 *due, __u64 cost_ns, __u64 tolerance_ns)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 from = *due > now ? *due : now;

	if (from - now <= tolerance_ns)
		*due = from + cost_ns;
	return from - now;
}

/* Takes a packet out of a budget for control traffic, if that holds as much. */
static __always_inline int take_control(__u32 budget, __u64 byte_ns, __u32 bytes)
{
	/* A burst is 40 ms of the rate, and on slow links a few small packets. */
	const __u64 burst_ns = 40000000, burst_bytes = 512;
	__u64 tolerance_ns = byte_ns * burst_bytes;
	__u64 *due = bpf_map_lookup_elem(&control_due, &budget);

	if (tolerance_ns < burst_ns)
		tolerance_ns = burst_ns;
	return due && gcra(due, link_bytes(bytes) * byte_ns, tolerance_ns) <= tolerance_ns;
}

/* Whether a packet is control traffic and within the budget of who sent it. */
static __always_inline int is_control(struct __sk_buff *skb, __u32 number, __u32 bytes)
{
	/* For ARP and neighbour discovery of others than the host. */
	const __u32 max_bytes = 128;
	/* 100 kbit/s, until the agent tells. */
	const __u64 default_byte_ns = 80000;
	int own = number == WEIR_NUMBER_HOST && (incoming || !skb->ingress_ifindex);
	enum weir_control_kind kind = weir_control_kind(skb, !own);
	__u64 eighth_ns;

	if (!kind || (!own && bytes > max_bytes))
		return 0;
	eighth_ns = 8 * (control_byte_ns ? control_byte_ns : default_byte_ns);
	if (own && kind == WEIR_CONTROL_NEIGHBOUR)
		return take_control(WEIR_BUDGET_NEIGHBOUR,
				    eighth_ns / WEIR_BUDGET_NEIGHBOUR_EIGHTHS, bytes);
	if (kind == WEIR_CONTROL_DHCP)
		return take_control(WEIR_BUDGET_DHCP,
				    eighth_ns / WEIR_BUDGET_DHCP_EIGHTHS, bytes);
	if (kind == WEIR_CONTROL_PROTOCOL)
		return take_control(WEIR_BUDGET_PROTOCOL,
				    eighth_ns / WEIR_BUDGET_PROTOCOL_EIGHTHS, bytes);
	if (number < WEIR_NUMBER_FIRST)
		return take_control(WEIR_BUDGET_FOREIGN,
				    eighth_ns / WEIR_BUDGET_FOREIGN_EIGHTHS, bytes);
	eighth_ns /= WEIR_BUDGET_CONTAINERS_EIGHTHS;
	return take_control(number, eighth_ns * (control_containers ?: 1), bytes) &&
	       take_control(WEIR_BUDGET_CONTAINERS, eighth_ns, bytes);
}

static __always_inline struct weir_activity *activity_of(__u32 number)
{
	return bpf_map_lookup_elem(&activities, &number);
}

/* From Linux 6.2 (commit fd264ca02094). */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Whether nothing waits at the device, in any queue of its root qdisc's. */
static __always_inline int nobody_waits(struct __sk_buff *skb)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);

	return !packet->dev->qdisc->q.qlen;
}

/* Whether a packet of unknown origin is within the rate of all of these. */
static __always_inline int unknown_allowed(__u32 bytes)
{
	const __u64 burst_ns = 100000000;
	__u32 zero = 0;
	__u64 *due = bpf_map_lookup_elem(&unknown_due, &zero);

	return due && gcra(due, link_bytes(bytes) * unknown_byte_ns, burst_ns) <= burst_ns;
}

/* Whether the link has sent all that was offered before this packet. */
static __always_inline int link_is_idle(__u32 taken)
{
	/* What is offered and dropped later does not count for long. */
	const __u64 most_ns = 10000000;
	__u32 zero = 0;
	__u64 *due = bpf_map_lookup_elem(&link_due, &zero);
	__u64 cost_ns = taken * link_byte_shifted_ns >> WEIR_LINK_BYTE_SHIFT;

	return due && !gcra(due, cost_ns, most_ns);
}

/* Leaves the priority for the devices below; one that no qdisc knows is none. */
static __always_inline void save(struct __sk_buff *skb)
{
	__u32 priority = skb->priority;

	if (priority > WEIR_SAVED_PRIORITY_MASK)
		priority = 0;
	skb->tc_index = WEIR_SAVED_BASE | priority |
			(vlan_pcps[priority] & 7) << WEIR_SAVED_PCP_SHIFT;
}

/*
 * Whether a packet of EF is within the rate that its container's EF is held to. Of
 * what is too much, flows go to BE and stay there for a while: where flows are known
 * (police.h) first those of large packets, then the ones that meet the end of the
 * budget most often. So those that send little keep their place, a flow that loses it is
 * in order (what went before is ahead), and one that gets it back may be overtaken by
 * itself once. Flows of one hash share a place.
 */
static __always_inline int ef_within(struct __sk_buff *skb, struct weir_class_activity *counts,
				     __u32 number, __u64 byte_shifted_ns, __u32 bytes)
{
	/* A burst is 20 ms of the rate, and on slow ones two frames. */
	const __u64 burst_ns = 20000000, burst_bytes = 3028;
	const __u32 hold_ms = 250, ms_ns = 1000000;
	__u64 tolerance_ns = burst_bytes * byte_shifted_ns >> WEIR_LINK_BYTE_SHIFT;
	__u64 cost_ns = link_bytes(bytes) * byte_shifted_ns >> WEIR_LINK_BYTE_SHIFT;
	__u64 now_ns = bpf_ktime_get_ns(), most_ns;
	__u32 now_ms = now_ns / ms_ns, *until_ms, left_ms;
	int demoted;

	until_ms = &counts->ef_excess_until_ms[bpf_get_hash_recalc(skb) % WEIR_EF_FLOWS];
	/* What is further away than it can be was never set, or long ago. */
	left_ms = *until_ms - now_ms;
	if (left_ms && left_ms <= hold_ms)
		return 0;
	if (tolerance_ns < burst_ns)
		tolerance_ns = burst_ns;
	/* What was used at a lower rate is no debt at this one. */
	most_ns = now_ns + 2 * tolerance_ns + cost_ns;
	if (counts->ef_due > most_ns)
		counts->ef_due = most_ns;
	if (gcra(&counts->ef_due, cost_ns, tolerance_ns) <= tolerance_ns)
		return 1;
	demoted = weir_demote(number, bpf_get_hash_recalc(skb));
	if (demoted > 0)
		return 0;
	/* Flows of small packets may be what is urgent: they have as much again. */
	if (!demoted && gcra(&counts->ef_due, cost_ns, 2 * tolerance_ns) <= 2 * tolerance_ns)
		return 1;
	*until_ms = now_ms + hold_ms;
	return 0;
}

/* weir_known_flow of a packet that passed no tap. Not inlined: it is rare. */
__noinline int weir_untapped(struct __sk_buff *skb, __u32 number)
{
	return weir_known_flow(skb, number, link_header_bytes, 0);
}

/*
 * The minor that the packets of a number go into, by what class they are of: that of
 * all packets of the number, that of their tag, or where they passed no tap that of
 * their flow, which is looked at here then (host mode).
 */
static __always_inline __u32 minor_of(struct __sk_buff *skb, __u32 number, __u32 tag,
				      __u32 bytes, __u32 segments, __u32 *served)
{
	struct weir_minors *of = bpf_map_lookup_elem(&minors, &number);
	struct weir_class_activity *counts;
	__u32 minor;
	int class;

	if (!of)
		return number;
	if (of->traffic_class != WEIR_CLASS_AUTO) {
		class = of->traffic_class;
	} else if (tag & UNTAPPED) {
		class = weir_untapped(skb, number);
		if (class < 0)
			class = weir_any_flow(skb, number, link_header_bytes, 0);
	} else {
		class = tag >> WEIR_TAG_CLASS_SHIFT;
	}
	if (!incoming && !(tag & CARRIED) && (of->traffic_class == WEIR_CLASS_AUTO ||
			  (note_senders && number >= WEIR_NUMBER_FIRST)))
		weir_note_sender(skb, number, class, link_header_bytes);
	class &= WEIR_CLASSES - 1;
	if (class) {
		counts = bpf_map_lookup_elem(&class_activity, &number);
		if (class == WEIR_CLASS_EF && of->ef_byte_shifted_ns &&
		    !(counts && ef_within(skb, counts, number, of->ef_byte_shifted_ns, bytes))) {
			if (counts)
				__sync_fetch_and_add(&counts->ef_excess_bytes, bytes);
			class = WEIR_CLASS_BE;
		}
		if (counts) {
			__sync_fetch_and_add(&counts->bytes[class], bytes);
			__sync_fetch_and_add(&counts->packets[class], segments);
		}
		if (of->mark_dscp && !incoming)
			weir_mark_dscp(skb, class, link_header_bytes);
	}
	*served = class;
	minor = of->minors[class];
	if (!minor)
		minor = of->minors[WEIR_CLASS_NONE];
	return minor ?: number;
}

/*
 * Wakes the agent if it waits for a packet. Of two processors both may do so. The ring is
 * full only of wake-ups that the agent has not read yet.
 */
static __always_inline void wake(void)
{
	__u64 now_ns;

	if (wake_ns != WEIR_WAKE_ARMED)
		return;
	now_ns = bpf_ktime_get_ns();
	wake_ns = now_ns;
	bpf_ringbuf_output(&wakeups, &now_ns, sizeof(now_ns), BPF_RB_FORCE_WAKEUP);
}

/* can_see: the kernel lets a program see whether packets wait. */
static __always_inline int classify(struct __sk_buff *skb, int can_see)
{
	/* Read in one place only, or the compiler makes an address of it. */
	__u32 bytes = skb->wire_len, segments = skb->gso_segs ?: 1;
	__u32 taken = link_bytes(bytes), tag = tag_of(skb), number = tag & WEIR_TAG_NUMBER_MASK, served = 0;
	struct weir_activity *activity;

	if (incoming)
		weir_arrived();
	if (number == WEIR_NUMBER_NONE) {
		activity = activity_of(WEIR_NUMBER_NONE);
		if (activity) /* so that the agent sees it */
			__sync_fetch_and_add(&activity->classed_bytes, taken);
	}
	if (is_control(skb, number, bytes)) {
		tag = number = WEIR_NUMBER_CONTROL;
	} else {
		wake();
		if (number == WEIR_NUMBER_NONE) {
			if (!unknown_allowed(bytes))
				return TC_ACT_SHOT;
			number = WEIR_NUMBER_HOST;
		}
	}

	if (save_priority)
		save(skb);
	skb->priority = class_major << 16 |
			minor_of(skb, number, tag, bytes, segments, &served);
	activity = activity_of(number);
	if (!activity)
		return TC_ACT_UNSPEC;
	if (can_see && link_byte_shifted_ns && link_is_idle(taken) &&
	    bytes <= direct_max_bytes && activity->may_go_direct &&
	    nobody_waits(skb)) {
		skb->priority = direct_major << 16;
		__sync_fetch_and_add(&activity->direct_bytes, bytes);
		__sync_fetch_and_add(&activity->direct_packets, segments);
		taken -= bytes;
	}
	if (taken)
		__sync_fetch_and_add(&activity->classed_bytes, taken);
	if (stamping)
		weir_stamp(skb, activity, number | served << WEIR_TAG_CLASS_SHIFT);

	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

SEC("tc")
int weir_uplink(struct __sk_buff *skb)
{
	return classify(skb, 1);
}

/* For kernels that do not let a program see the device's queue. */
SEC("tc")
int weir_uplink_old(struct __sk_buff *skb)
{
	return classify(skb, 0);
}

/*
 * At the egress hook of a tunnel of the host's whose packets leave by the uplink: lets
 * them have the container's number there. The choice of a queue overwrites
 * queue_mapping on the way. VXLAN leaves the priority as it is; WireGuard clears all but
 * the hash (drivers/net/wireguard/queueing.h, wg_reset_packet), and a hash that a
 * program has set counts as one of a flow's ports, so that it stays
 * (include/linux/skbuff.h, skb_clear_hash_if_not_l4). One that looks like a tag by chance,
 * once in 16384 flows, is cleared.
 */
static __always_inline int carry(struct __sk_buff *skb, int by_hash)
{
	__u32 tag = tag_of(skb) & WEIR_TAG_MASK;

	if ((tag & WEIR_TAG_NUMBER_MASK) >= WEIR_NUMBER_FIRST)
		weir_tag_priority(skb, tag);
	else if (is_priority_tag(skb->priority))
		skb->priority = 0;
	if (by_hash && is_priority_tag(skb->priority))
		bpf_set_hash(skb, (skb->priority & ~HASH_LEFT) |
					  (bpf_get_hash_recalc(skb) & HASH_LEFT));
	else if (by_hash && is_priority_tag(skb->hash))
		bpf_set_hash(skb, 0);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int weir_carry(struct __sk_buff *skb)
{
	return carry(skb, 0);
}

SEC("tc")
int weir_carry_hash(struct __sk_buff *skb)
{
	return carry(skb, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
