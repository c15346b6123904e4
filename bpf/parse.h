/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads of a packet what its flow is told by.
 *
 * The definition is internal/apps/flow's (headers.go), which captures are read
 * with; a test compares the two on generated packets. Besides, later fragments are
 * told apart here, which have no ports.
 *
 * Everything a container can send is looked at: nothing is believed of a length, all
 * loops are bounded, and what is not within the packet is not there. Of a packet in
 * pieces WEIR_PULL_BYTES are put together; headers beyond that are not found.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

#define WEIR_PULL_BYTES 256
#define WEIR_MAX_TAGS 4
#define WEIR_MAX_EXTENSIONS 8
#define WEIR_MAX_OPTION_BYTES 40
#define WEIR_USUAL_OPTION_BYTES 20
/* Where the last header may begin: after as many of the longest as are looked at. */
#define WEIR_MAX_OFFSET 0x4fff

enum weir_parsed {
	/* Neither TCP nor UDP, or damaged. */
	WEIR_PARSED_NO = 0,
	WEIR_PARSED_WHOLE,
	/* The tuple has the fragments' ID in place of ports. */
	WEIR_PARSED_FIRST_FRAGMENT,
	WEIR_PARSED_LATER_FRAGMENT,
};

struct weir_headers {
	/* As sent: a is the source. */
	struct weir_tuple tuple;
	__u32 fragment_id;
	/* Where the transport's header is, from the beginning of the packet. */
	__u32 transport;
	/* Bytes of payload of the whole packet. */
	__u32 payload_bytes;
	/* Of a SYN; words of features (docs/classifier.md). */
	__u16 mss, window, wscale, ttl;
	__u8 syn, ack, closing;
	/* 0 also where the packet is none of IP. */
	__u8 dscp;
};

/* size bytes of the packet at an offset, or NULL. */
static __always_inline void *weir_at(struct __sk_buff *skb, __u32 offset, __u32 size)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	/* Or the compiler copies pointers as the 32 bits that the field is said to have. */
	asm volatile("" : "+r"(data), "+r"(end));
	if (offset > WEIR_MAX_OFFSET || data + offset + size > end)
		return 0;
	return data + offset;
}

/*
 * Reads the option at an offset, of which and of what follows there are so many bytes.
 * Returns its size, 0 for the end. This and what follows are not inlined, so that the
 * verifier looks at each once.
 */
__noinline int weir_option(struct __sk_buff *skb, __u32 offset, __u32 bytes,
			   struct weir_headers *h)
{
	__u8 *p = weir_at(skb, offset, 1);
	__u32 size;

	if (!p || !h || !p[0])
		return 0;
	if (p[0] == 1)
		return 1;
	p = weir_at(skb, offset, 2);
	if (!p || bytes < 2)
		return 0;
	size = p[1];
	if (size < 2 || size > bytes)
		return 0;
	if (p[0] == 2 && size == 4) {
		p = weir_at(skb, offset, 4);
		if (!p)
			return 0;
		h->mss = p[2] << 8 | p[3];
	} else if (p[0] == 3 && size == 3) {
		p = weir_at(skb, offset, 3);
		if (!p)
			return 0;
		h->wscale = p[2] + 1;
	}
	return size;
}

/*
 * Most SYNs have the options of Linux: MSS, SACK permitted, time stamps, padding,
 * window scale. Returns 0 for others.
 */
__noinline int weir_usual_options(struct __sk_buff *skb, __u32 offset, struct weir_headers *h)
{
	__u8 *p = weir_at(skb, offset, WEIR_USUAL_OPTION_BYTES);

	if (!p || !h || p[0] != 2 || p[1] != 4 || p[4] != 4 || p[5] != 2 || p[6] != 8 || p[7] != 10 ||
	    p[16] != 1 || p[17] != 3 || p[18] != 3)
		return 0;
	h->mss = p[2] << 8 | p[3];
	h->wscale = p[19] + 1;
	return 1;
}

/* MSS and window scale of the options from offset, as far as the packet goes. */
__noinline int weir_options(struct __sk_buff *skb, __u32 offset, __u32 bytes,
			    struct weir_headers *h)
{
	__u32 at = 0, i;

	if (!h || skb->len < offset)
		return 0;
	if (bytes == WEIR_USUAL_OPTION_BYTES && weir_usual_options(skb, offset, h))
		return 0;
	if (bytes > skb->len - offset)
		bytes = skb->len - offset;
	for (i = 0; i < WEIR_MAX_OPTION_BYTES && at < bytes; i++) {
		int size = weir_option(skb, offset + at, bytes - at, h);

		if (size <= 0 || size > WEIR_MAX_OPTION_BYTES)
			break;
		at += size;
	}
	return 0;
}

/* The transport's header at offset, of length bytes with what follows. */
__noinline int weir_transport(struct __sk_buff *skb, __u32 offset, __s32 length,
			      struct weir_headers *h)
{
	__u8 *p = weir_at(skb, offset, 8);
	__u32 size;

	if (!p || !h)
		return 0;
	h->transport = offset;
	h->tuple.port_a = *(__be16 *)p;
	h->tuple.port_b = *(__be16 *)(p + 2);
	if (h->tuple.proto == IPPROTO_UDP) {
		h->payload_bytes = length > 8 ? length - 8 : 0;
		return 1;
	}
	if (h->tuple.proto != IPPROTO_TCP)
		return 0;
	p = weir_at(skb, offset, 20);
	if (!p)
		return 0;
	size = (p[12] >> 4) * 4;
	if (size < 20 || length < (__s32)size)
		return 0;
	h->payload_bytes = length - size;
	h->syn = !!(p[13] & 2);
	h->ack = !!(p[13] & 16);
	h->closing = !!(p[13] & 5);
	if (h->syn) {
		h->window = p[14] << 8 | p[15];
		weir_options(skb, offset + 20, size - 20, h);
	}
	return 1;
}

__noinline int weir_ipv4(struct __sk_buff *skb, __u32 offset, struct weir_headers *h)
{
	__u8 *p = weir_at(skb, offset, 20);
	__u32 size, length, field;

	if (!h || !p || p[0] >> 4 != 4)
		return WEIR_PARSED_NO;
	size = (p[0] & 15) * 4;
	length = p[2] << 8 | p[3];
	field = p[6] << 8 | p[7];
	if (!length) /* left to the network card */
		length = skb->len - offset;
	if (size < 20 || length < size || !weir_at(skb, offset, size))
		return WEIR_PARSED_NO;
	h->dscp = p[1] >> 2;
	h->ttl = p[8] + 1;
	h->tuple.proto = p[9];
	h->tuple.family = 4;
	h->tuple.a[0] = *(__u32 *)(p + 12);
	h->tuple.b[0] = *(__u32 *)(p + 16);
	h->fragment_id = p[4] << 8 | p[5];
	if (field & 0x1fff)
		return WEIR_PARSED_LATER_FRAGMENT;
	if (!weir_transport(skb, offset + size, length - size, h))
		return WEIR_PARSED_NO;
	return field & 0x2000 ? WEIR_PARSED_FIRST_FRAGMENT : WEIR_PARSED_WHOLE;
}

__noinline int weir_ipv6(struct __sk_buff *skb, __u32 offset, struct weir_headers *h)
{
	int parsed = WEIR_PARSED_WHOLE, i;
	__u32 *p = weir_at(skb, offset, 40);
	__u8 *bytes = (__u8 *)p;
	__s32 length;
	__u8 next;

	if (!h || !p || bytes[0] >> 4 != 6)
		return WEIR_PARSED_NO;
	length = bytes[4] << 8 | bytes[5];
	next = bytes[6];
	h->dscp = (bytes[0] & 15) << 2 | bytes[1] >> 6;
	h->ttl = bytes[7] + 1;
	h->tuple.family = 6;
	for (i = 0; i < 4; i++) {
		h->tuple.a[i] = p[2 + i];
		h->tuple.b[i] = p[6 + i];
	}
	offset += 40;
	if (!length) /* a jumbogram, or left to the network card */
		length = skb->len - offset;
	for (i = 0; i < WEIR_MAX_EXTENSIONS; i++) {
		__u32 size;

		/* hop by hop, routing, destination, mobility; fragment; authentication */
		if (next != 0 && next != 43 && next != 60 && next != 135 && next != 44 &&
		    next != 51) {
			h->tuple.proto = next;
			return weir_transport(skb, offset, length, h) ? parsed : WEIR_PARSED_NO;
		}
		bytes = weir_at(skb, offset, 8);
		if (!bytes)
			return WEIR_PARSED_NO;
		size = 8;
		if (next == 51)
			size += bytes[1] * 4;
		else if (next != 44)
			size += bytes[1] * 8;
		if (next == 44) {
			__u32 field = bytes[2] << 8 | bytes[3];

			h->fragment_id = bytes[4] << 24 | bytes[5] << 16 | bytes[6] << 8 | bytes[7];
			if (field & 0xfff8) {
				h->tuple.proto = 0;
				return WEIR_PARSED_LATER_FRAGMENT;
			}
			if (field & 1)
				parsed = WEIR_PARSED_FIRST_FRAGMENT;
		}
		if (!weir_at(skb, offset, size) || length < (__s32)size)
			return WEIR_PARSED_NO;
		next = bytes[0];
		offset += size;
		length -= size;
	}
	return WEIR_PARSED_NO;
}

static __always_inline int weir_ip(struct __sk_buff *skb, __u32 offset, struct weir_headers *h)
{
	__u8 *version = weir_at(skb, offset, 1);

	if (!version || !h)
		return WEIR_PARSED_NO;
	return *version >> 4 == 6 ? weir_ipv6(skb, offset, h) : weir_ipv4(skb, offset, h);
}

/*
 * Reads the headers of a packet. link_bytes: of its link layer header, 14 for
 * Ethernet; 0 for a device that has none.
 */
__noinline int weir_parse(struct __sk_buff *skb, __u32 link_bytes, struct weir_headers *h)
{
	__u32 offset = link_bytes, i;
	__be16 kind = skb->protocol;
	__be16 *p;

	if (!h)
		return WEIR_PARSED_NO;
#ifndef WEIR_NO_PULL
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + WEIR_PULL_BYTES > end && end - data < skb->len)
		bpf_skb_pull_data(skb, skb->len < WEIR_PULL_BYTES ? skb->len : WEIR_PULL_BYTES);
#endif
	if (link_bytes) {
		p = weir_at(skb, ETH_HLEN - 2, 2);
		if (!p)
			return WEIR_PARSED_NO;
		kind = *p;
	}
	for (i = 0; i < WEIR_MAX_TAGS; i++) {
		if (kind == bpf_htons(ETH_P_PPP_SES)) {
			kind = bpf_htons(ETH_P_IP);
			offset += 8;
		}
		if (kind == bpf_htons(ETH_P_IP) || kind == bpf_htons(ETH_P_IPV6))
			return weir_ip(skb, offset, h);
		if (kind != bpf_htons(ETH_P_8021Q) && kind != bpf_htons(ETH_P_8021AD) &&
		    kind != bpf_htons(ETH_P_QINQ1))
			break;
		p = weir_at(skb, offset + 2, 2);
		if (!p)
			break;
		kind = *p;
		offset += 4;
	}
	return WEIR_PARSED_NO;
}

#endif
