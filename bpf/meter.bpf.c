// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Meter: exact bytes per container, counted by the neighbour.
 *
 * 1. Problem. A scheduler must be judged by what leaves the link, not by what
 *    it says of itself, and by whom each byte was sent, though NAT hides the
 *    sender's address. A user-space sampler is late exactly when the machine
 *    is busy.
 * 2. Method. The program runs on ingress of the neighbour's end of the link.
 *    Each container sends to its own destination port, which NAT leaves alone:
 *    slot = destination port - base_port; anything else goes to the last slot.
 *    Bytes are L2 frame bytes without FCS, as tc counts them: for a GSO packet
 *    the headers of every segment it will become are added
 *    (qdisc_pkt_len_init() in net/core/dev.c does the same).
 *    VXLAN hides the container's port in the packet inside: then that one's
 *    counts, and the bytes are still those of the packet outside.
 *    Next to totals there is a time series: while origin_ns is set, bytes are
 *    also added to the bin of the packet's arrival time, so a series has no
 *    missed and no late sample at any load.
 * 3. Limits. VXLAN on its assigned port only, and not within itself. TCP and
 *    UDP over IPv4 and IPv6, no VLAN tags, no IPv6 extension
 *    headers, no later fragments: those count as "other". The minimum frame
 *    size of Ethernet (60 bytes) is not padded to; tc does not either.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TCX_NEXT -1 /* = TC_ACT_UNSPEC: leave the packet to the next program */
#define IP_OFFSET_MASK 0x1fff
#define VXLAN_PORT 4789 /* IANA's */
#define VXLAN_HLEN 8

/* First port; set before loading. */
const volatile __u16 base_port = 5200;
/* Number of slots without "other"; set before loading. */
const volatile __u32 slots = 1;
/* Width of a bin of the series, in nanoseconds; set before loading. */
const volatile __u64 bin_ns = 1000000;
/* Bins per slot; 0 means no series; set before loading. */
const volatile __u32 bins = 0;
/* Bytes before the network header; 0 on a tunnel without Ethernet; set before loading. */
const volatile __u32 link_header_bytes = ETH_HLEN;

/* CLOCK_MONOTONIC time of the first bin's start; 0 means not recording. */
__u64 origin_ns = 0;

struct counter {
	__u64 bytes;
	__u64 packets;
};

/* Totals by slot; user space sets the size and maps it into memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counter);
} totals SEC(".maps");

/* Bytes by slot and bin, slot-major; user space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} series SEC(".maps");

struct packet {
	__u32 slot;
	__u32 header_bytes; /* L2 to L4, what every segment repeats */
};

/* Where a packet's L4 header is; offset 0 if there is none to be found. */
struct l4 {
	__u32 offset;
	__u8 protocol;
	__u16 port; /* destination */
};

static __always_inline struct l4 find_l4(struct __sk_buff *skb, __u32 l3_offset, __be16 ethertype)
{
	struct l4 none = {}, found = {};
	__be16 port;

	if (ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, l3_offset, &ip, sizeof(ip)) < 0)
			return none;
		if (ip.frag_off & bpf_htons(IP_OFFSET_MASK))
			return none;
		found.offset = l3_offset + ip.ihl * 4;
		found.protocol = ip.protocol;
	} else if (ethertype == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, l3_offset + offsetof(struct ipv6hdr, nexthdr),
				       &found.protocol, 1) < 0)
			return none;
		found.offset = l3_offset + sizeof(struct ipv6hdr);
	} else {
		return none;
	}
	if (found.protocol != IPPROTO_TCP && found.protocol != IPPROTO_UDP)
		return none;
	/* Source and destination port are at the same place in TCP and UDP. */
	if (bpf_skb_load_bytes(skb, found.offset + 2, &port, sizeof(port)) < 0)
		return none;
	found.port = bpf_ntohs(port);
	return found;
}

static __always_inline void parse(struct __sk_buff *skb, struct packet *pkt)
{
	struct l4 l4 = find_l4(skb, link_header_bytes, skb->protocol);
	__u32 slot;

	if (l4.offset && l4.protocol == IPPROTO_UDP && l4.port == VXLAN_PORT) {
		__u32 l2_offset = l4.offset + sizeof(struct udphdr) + VXLAN_HLEN;
		__be16 ethertype;

		if (bpf_skb_load_bytes(skb, l2_offset + offsetof(struct ethhdr, h_proto),
				       &ethertype, sizeof(ethertype)) < 0)
			return;
		l4 = find_l4(skb, l2_offset + ETH_HLEN, ethertype);
	}
	if (!l4.offset)
		return;
	pkt->header_bytes = l4.offset + sizeof(struct udphdr);
	if (l4.protocol == IPPROTO_TCP) {
		__u8 data_offset;

		if (bpf_skb_load_bytes(skb, l4.offset + 12, &data_offset, 1) < 0)
			return;
		pkt->header_bytes = l4.offset + (data_offset >> 4) * 4;
	}
	slot = (__u32)l4.port - base_port;
	if (slot < slots) /* a port below base_port wraps around to a huge slot */
		pkt->slot = slot;
}

SEC("tc")
int meter(struct __sk_buff *skb)
{
	struct packet pkt = {.slot = slots};
	__u64 bytes = skb->len, packets = 1, bin, origin;
	struct counter *total;
	__u64 *bin_bytes;
	__u32 index;

	parse(skb, &pkt);

	if (skb->gso_size && skb->len > pkt.header_bytes) {
		packets = (skb->len - pkt.header_bytes + skb->gso_size - 1) / skb->gso_size;
		bytes += (packets - 1) * pkt.header_bytes;
	}

	total = bpf_map_lookup_elem(&totals, &pkt.slot);
	if (!total)
		return TCX_NEXT;
	__sync_fetch_and_add(&total->bytes, bytes);
	__sync_fetch_and_add(&total->packets, packets);

	origin = origin_ns;
	if (!origin)
		return TCX_NEXT;
	bin = (bpf_ktime_get_ns() - origin) / bin_ns;
	if (bin >= bins) /* also before the origin: the difference wraps around */
		return TCX_NEXT;
	index = pkt.slot * bins + bin;
	bin_bytes = bpf_map_lookup_elem(&series, &index);
	if (bin_bytes)
		__sync_fetch_and_add(bin_bytes, bytes);
	return TCX_NEXT;
}

char __license[] SEC("license") = "Dual BSD/GPL";
