/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stamp that delay.bpf.c measures by: what uplink.bpf.c leaves in a packet
 * on its way through the queues.
 *
 * 1. Problem. How long packets of a container wait at the uplink cannot be seen
 *    in counters, and to look at every packet costs more than the rest.
 * 2. Place. skb->cb, in the part that queueing disciplines share (struct
 *    qdisc_skb_cb, data): 20 bytes, which __sk_buff knows as cb[0] to cb[4].
 *    HTB, TBF and FIFOs leave all of it alone, fq_codel uses the first 8
 *    bytes (include/net/codel_impl.h). Segments get a copy (skb_segment). It
 *    is written last before the queue, so no other stamp is read.
 * 3. Choice. In a window of 16 ticks of the kernel's clock each of a
 *    container's first packets is stamped, so that one that sends little is
 *    known as well; of those after them one in WEIR_STAMP_RARELY, at random. A
 *    stamp carries how many packets it stands for, the inverse of its
 *    probability, so the histogram is an unbiased one of all packets (Horvitz
 *    and Thompson 1952), also when they come in bursts.
 */
#ifndef WEIR_DELAY_H
#define WEIR_DELAY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

/*
 * The magic, whether the packet stands for WEIR_STAMP_RARELY or for one, whose it is
 * and, as in a tag, of which traffic class it is served.
 */
#define WEIR_STAMP_MAGIC 0x5d3e0000
#define WEIR_STAMP_MAGIC_MASK 0xffff0000
#define WEIR_STAMP_RARE 0x8000
#define WEIR_STAMP_TAG_MASK WEIR_TAG_MASK
/* Windows of 16 ticks; packets of each that are all stamped; then 1 in 32. */
#define WEIR_STAMP_WINDOW_SHIFT 4
#define WEIR_STAMP_ALL 16
#define WEIR_STAMP_RARELY 32

/* As it lies in cb[2] to cb[4]. */
struct weir_stamp {
	__u32 head;
	__u32 time_ns_low;
	__u32 time_ns_high;
};

/* Where in qdisc_skb_cb's data it is. */
#define WEIR_STAMP_OFFSET 8

/* Races between processors cost a stamp or add one, no worse. */
static __always_inline void weir_stamp(struct __sk_buff *skb,
				       struct weir_activity *activity,
				       __u32 tag)
{
	__u32 window = bpf_jiffies64() >> WEIR_STAMP_WINDOW_SHIFT;
	__u32 head = WEIR_STAMP_MAGIC | tag;
	__u64 now;

	if (activity->window != window) {
		activity->window = window;
		activity->window_packets = 0;
	}
	if (activity->window_packets < WEIR_STAMP_ALL) {
		activity->window_packets++;
	} else if (!(bpf_get_prandom_u32() % WEIR_STAMP_RARELY)) {
		head |= WEIR_STAMP_RARE;
	} else {
		skb->cb[2] = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	skb->cb[2] = head;
	skb->cb[3] = now;
	skb->cb[4] = now >> 32;
}

#endif
