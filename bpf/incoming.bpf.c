// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds the container that a received packet is for, at the ingress hook of the
 * uplink, and hands the packet to the IFB where downloads are shared.
 *
 * 1. Problem. Linux shapes what a device sends, not what it receives. And a packet
 *    from the network has the addresses that NAT gave its flow: the container is
 *    known only after conntrack, which comes later.
 * 2. Method. A filter of the uplink's clsact qdisc runs this program, and if the
 *    program matches, the action mirred redirects the packet to an IFB: a device
 *    whose queueing discipline is the same tree as for what is sent. There the
 *    classifier (uplink.bpf.c) reads the number from queue_mapping, as it does with
 *    the tag of a tap. The IFB then returns the packet to the uplink, behind this
 *    hook (tc_skip_classify), so no packet is looked at twice. mirred and not
 *    bpf_redirect: before commit 59e498a3289f (Linux 6.4) an IFB drops what
 *    bpf_redirect gives it, and bpf_redirect drops packets of devices without a link
 *    layer header.
 * 3. The container is, in this order:
 *    a. the one that sent a packet of the same flow, as the link sees it (sender.h);
 *    b. if the frame is for the host, the one that published the port, if the packet's address
 *       is the host's, too; or that the frame within a VXLAN packet is for. The uplink may
 *       be a port of a bridge with a MAC of its own: the agent says which MACs are the host's,
 *       and which device routes the packet. For frames with a VLAN tag that is taken to be
 *       the uplink: a VLAN above it with a VRF, or forwarding, of its own is not asked;
 *    c. if the frame is for a container's MAC, that container: macvlan, or a port of the
 *       uplink's bridge;
 *    d. the host.
 *    The first fragment of a packet notes the container for the later ones.
 *    A packet with the tag of a tap is from a container of this host, a port of the bridge
 *    that the uplink is: no link has carried it, and it goes on unshaped.
 * 4. It fails open. mirred drops every packet while the IFB is down or deleted, which
 *    would cut the host off. The classifier at the IFB runs within the same call as
 *    this program (mirred, dev_queue_xmit, egress hook), so each packet that left
 *    here has arrived there before the next one comes. If the last packet of this
 *    processor has not, the next ones go on unshaped, and one in a second tries again.
 *    Costs: one packet a processor when the IFB goes, and one a second until it is
 *    back.
 *
 * What can be forged? A sender that reaches the uplink can load the share of a container
 * that it sends to, and of no other. The frame within its VXLAN packet counts only with
 * the port and identifier of a network that the container is in. Later fragments that
 * come before the first one, or a second after it, are the host's, and so are packets
 * within ESP.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "crossing.h"
#include "intf.h"
#include "sender.h"
#include "tag.h"

/* Of lo in every network namespace. */
#define LOOPBACK_INDEX 1

/* Of a VLAN tag, beside its priority. */
#define VLAN_ID_MASK 0xfff

/* Of the uplink's frames: 14 for Ethernet, 0 where packets have no such header. */
const volatile __u32 link_header_bytes = ETH_HLEN;

/* Shared with the classifier at the IFB, which never reads it. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * WEIR_NUMBERS);
	__type(key, struct weir_published);
	__type(value, __u32);
} published SEC(".maps");

/*
 * Whose the devices are that received frames name: containers', and the host's above the
 * uplink. Written by the agent only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * WEIR_NUMBERS);
	__type(key, struct weir_destination);
	__type(value, struct weir_receiver);
} destinations SEC(".maps");

/* Since when each number has its present holder, as in weir_bucket. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, __u32);
} holder_since_ms SEC(".maps");

/*
 * Reads the headers of a received packet: as weir_read_other. Of a later fragment the tuple is
 * the one that the first has left.
 */
static __always_inline int read_headers(struct __sk_buff *skb, struct weir_plain *plain,
					struct weir_tuple *tuple)
{
	int read;

	if (weir_read_plain(skb, link_header_bytes, plain)) {
		__u32 ip_bytes = plain->rest >> 8 == 6 ? 40 : 20;

		return WEIR_PARSED_WHOLE |
		       (link_header_bytes + ip_bytes) << WEIR_OTHER_TRANSPORT_SHIFT;
	}
	read = weir_read_other(skb, link_header_bytes, tuple);
	if ((read & WEIR_OTHER_PARSED) == WEIR_PARSED_LATER_FRAGMENT)
		weir_read_fragments(skb, link_header_bytes, tuple);
	weir_as_plain(tuple, plain);
	plain->from_b = !!(read & WEIR_OTHER_FROM_B);
	return read;
}

/*
 * Notes whose a tuple is, with the number and class of a tag. Not inlined: it is for first
 * fragments, which are rare.
 */
__noinline int weir_note_tuple(const struct weir_tuple *tuple, __u32 tag)
{
	struct weir_plain plain = {};

	if (!tuple)
		return 0;
	weir_as_plain(tuple, &plain);
	weir_note(&plain, tag & WEIR_TAG_NUMBER_MASK, tag >> WEIR_TAG_CLASS_SHIFT);
	return 0;
}

/* The number and class, as in a tag, of the container that sent a packet of the flow; 0 for none. */
static __always_inline __u32 tag_of_sender(const struct weir_plain *plain)
{
	struct weir_sender_bucket *bucket;
	struct weir_flow_config *config;
	__u32 zero = 0, hash, index, way, now_ms, tag, number, *since_ms, age_ms;
	__u32 most_ms = plain->rest & 0xff ? WEIR_IDLE_MS : WEIR_FRAGMENTS_MS;
	void *table;

	table = bpf_map_lookup_elem(&sender_table, &zero);
	config = bpf_map_lookup_elem(&flow_configs, &zero);
	if (!table || !config)
		return 0;
	hash = weir_hash_plain(plain, config);
	index = hash & config->bucket_mask;
	bucket = bpf_map_lookup_elem(table, &index);
	if (!bucket)
		return 0;
	now_ms = weir_now_ms();
	tag = weir_flow_tag(hash, 0);
#pragma unroll
	for (way = 0; way < WEIR_WAYS; way++) {
		if (bucket->tags[way] != tag || !weir_same_plain(&bucket->tuples[way], plain))
			continue;
		number = bucket->numbers[way] & WEIR_TAG_NUMBER_MASK;
		age_ms = weir_silent_ms(now_ms, bucket->seen_ms[way]);
		since_ms = bpf_map_lookup_elem(&holder_since_ms, &number);
		/* Ages are compared, as the clock wraps. */
		if (age_ms > most_ms || !since_ms ||
		    (*since_ms && age_ms > now_ms - *since_ms))
			return 0;
		return number | (bucket->classes[way] & 3) << WEIR_TAG_CLASS_SHIFT;
	}
	return 0;
}

/* The destination's port, in network order. */
static __always_inline __be16 port_of(const struct weir_plain *plain)
{
	/* It is b as sent. */
	return plain->from_b ? plain->ports & 0xffff : plain->ports >> 16;
}

/*
 * Whether the host would pass the packet on that the device ifindex has taken in. The kernel does
 * not say so of addresses of its own, nor where that device forwards nothing. With IPv6 a device's
 * own setting makes it a router or a host, and the one of all devices, which that of lo follows,
 * decides whether packets are passed on (ip6_forward).
 */
static __always_inline int is_forwarded(struct __sk_buff *skb, const struct weir_plain *plain, __u16 family,
					__u32 ifindex)
{
	struct bpf_fib_lookup route = {
		.family = family, .l4_protocol = plain->rest & 0xff, .ifindex = ifindex };
	__u64 a[2] = { plain->a0, plain->a1 }, b[2] = { plain->b0, plain->b1 };
	long found;

	__builtin_memcpy(route.ipv6_src, plain->from_b ? b : a, sizeof(a));
	__builtin_memcpy(route.ipv6_dst, plain->from_b ? a : b, sizeof(a));
	found = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	if (found == BPF_FIB_LKUP_RET_FWD_DISABLED && family == 10) {
		route.ifindex = LOOPBACK_INDEX;
		found = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	}
	return found >= 0 && found != BPF_FIB_LKUP_RET_NOT_FWDED && found != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/*
 * The number of the container that publishes the port of the host's that the packet is for; 0
 * for none. A gateway also gets what is for that port of other machines.
 */
static __always_inline __u32 number_of_port(struct __sk_buff *skb, const struct weir_plain *plain,
					    __u32 ifindex)
{
	struct weir_published key = {
		.family = plain->rest >> 8 == 6 ? 10 : 2, .protocol = plain->rest & 0xff };
	__u32 *number;

	key.port = bpf_ntohs(port_of(plain));
	number = bpf_map_lookup_elem(&published, &key);
	return number && !is_forwarded(skb, plain, key.family, ifindex) ? *number : 0;
}

/* The number of the container that the frame within a VXLAN packet is for (RFC 7348); 0 for none. */
static __always_inline __u32 number_of_inner(struct __sk_buff *skb, const struct weir_plain *plain,
					     __u32 transport)
{
	struct weir_destination key = {};
	struct weir_receiver *receiver;
	__u8 header[8 + ETH_ALEN];

	if ((plain->rest & 0xff) != IPPROTO_UDP ||
	    bpf_skb_load_bytes(skb, transport + 8, header, sizeof(header)) || !(header[0] & 8))
		return 0;
	key.vxlan_port = port_of(plain);
	key.vni = header[4] << 16 | header[5] << 8 | header[6];
	__builtin_memcpy(key.mac, header + 8, ETH_ALEN);
	receiver = bpf_map_lookup_elem(&destinations, &key);
	return receiver ? receiver->number : 0;
}

/* The device that the packet's frame names; NULL for none that is known. */
static __always_inline struct weir_receiver *receiver_of_frame(struct __sk_buff *skb)
{
	struct weir_destination key = {};

	if (link_header_bytes != ETH_HLEN || bpf_skb_load_bytes(skb, 0, key.mac, ETH_ALEN))
		return NULL;
	return bpf_map_lookup_elem(&destinations, &key);
}

SEC("tc")
int weir_incoming(struct __sk_buff *skb)
{
	struct weir_crossing *crossing = weir_crossing_here();
	struct weir_plain plain = {};
	struct weir_tuple tuple = {};
	struct weir_receiver *receiver;
	__u32 now_ms, tag = 0, routed_at = skb->ifindex;
	int read, parsed, for_host;

	/* A receive queue + 1, as cards write it, is no tag. */
	if (!crossing || weir_is_tag(skb->queue_mapping))
		return 0;
	if (crossing->leaving) {
		now_ms = weir_now_ms();
		if (now_ms - crossing->tried_ms < WEIR_CROSSING_RETRY_MS)
			return 0;
		crossing->tried_ms = now_ms;
	}
	crossing->leaving = 1;
	read = read_headers(skb, &plain, &tuple);
	parsed = read & WEIR_OTHER_PARSED;
	if (parsed != WEIR_PARSED_NO)
		tag = tag_of_sender(&plain);
	for_host = !tag && skb->pkt_type == PACKET_HOST;
	receiver = tag ? NULL : receiver_of_frame(skb);
	if (receiver && !for_host) {
		tag = receiver->number;
		for_host = tag == WEIR_NUMBER_HOST;
	}
	/*
	 * A port of a bridge routes nothing. Of a VLAN's frames the MAC does not tell the device; a
	 * tag that has only a priority (VLAN 0) names none.
	 */
	if (receiver && for_host && receiver->ifindex && !(skb->vlan_present && skb->vlan_tci & VLAN_ID_MASK))
		routed_at = receiver->ifindex;
	/* Of frames for other machines on a bridge the port says nothing. */
	if (for_host && (parsed == WEIR_PARSED_WHOLE || parsed == WEIR_PARSED_FIRST_FRAGMENT)) {
		tag = number_of_port(skb, &plain, routed_at);
		if (!tag)
			tag = number_of_inner(skb, &plain, read >> WEIR_OTHER_TRANSPORT_SHIFT);
	}
	if (tag && parsed == WEIR_PARSED_FIRST_FRAGMENT &&
	    weir_read_fragments(skb, link_header_bytes, &tuple))
		weir_note_tuple(&tuple, tag);
	if (!tag)
		tag = WEIR_NUMBER_HOST;
	skb->queue_mapping = WEIR_TAG_BASE | (tag & WEIR_TAG_MASK);
	return -1; /* the filter matches: on to mirred */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
