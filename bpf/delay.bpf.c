// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Measures how long packets wait at an uplink: from its egress hook, where
 * they get a stamp (delay.h), to the moment they are handed to the driver.
 *
 * The tracepoint is net_dev_start_xmit. It is passed by every device on a
 * packet's way, so the first test is for the uplink. qdisc_dequeue would be
 * passed by devices with queues only, but is passed in vain each time that
 * they are found empty, which costs more (measured with BenchmarkDelays), and
 * by the first only of packets that are taken in one go.
 *
 * The delays are counted for the container and, where it has traffic classes, for the
 * flow.
 *
 * A large packet that the device cannot cut up itself is seen as its segments,
 * each with the stamp and weight of the whole.
 */
#include <linux/bpf.h>
#include <stddef.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "delay.h"
#include "intf.h"
#include "netdev.h"
#include "table.h"

/* The uplink: its index, and the inode of its network namespace. */
const volatile __u32 uplink_ifindex = 0;
const volatile __u32 uplink_netns = 0;
/* The majors that packets with a stamp have in their priority (uplink.bpf.c). */
const volatile __u32 class_major = 0;
const volatile __u32 direct_major = 0;

/*
 * By number and traffic class, as in a tag. The agent adds an entry at its first reading of a number, and removes it with
 * the container: an array of all tags would take 6 MB.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WEIR_TAG_MASK + 1);
	__type(key, __u32);
	__type(value, struct weir_delays);
} delays SEC(".maps");

/* Makes the constants of intf.h known to the Go side (BTF keeps what is used). */
const enum weir_delay *weir_delay_btf __attribute__((unused));

/* What is used of the kernel's types; offsets are corrected at load time. */
#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)
struct qdisc_skb_cb {
	unsigned char data[20];
};
#pragma clang attribute pop

static __always_inline __u32 log2_floor(__u64 v)
{
	__u32 log = 0;

	if (v >> 32) {
		v >>= 32;
		log += 32;
	}
	if (v >> 16) {
		v >>= 16;
		log += 16;
	}
	if (v >> 8) {
		v >>= 8;
		log += 8;
	}
	if (v >> 4) {
		v >>= 4;
		log += 4;
	}
	if (v >> 2) {
		v >>= 2;
		log += 2;
	}
	return log + (v >> 1);
}

static __always_inline __u32 bucket_of(__u64 delay_ns)
{
	__u64 units = delay_ns >> WEIR_DELAY_UNIT_SHIFT;
	__u32 log, step, bucket;

	if (units < WEIR_DELAY_STEPS)
		return units;
	log = log2_floor(units);
	step = units >> (log - WEIR_DELAY_STEPS_SHIFT) & (WEIR_DELAY_STEPS - 1);
	bucket = (log - WEIR_DELAY_STEPS_SHIFT + 1) * WEIR_DELAY_STEPS + step;
	return bucket < WEIR_DELAY_BUCKETS ? bucket : WEIR_DELAY_BUCKETS - 1;
}

/* Counts the delay for the flow that the packet is of, if its tap looked for one. */
static __always_inline void count_flow(__u32 number, __u32 hash, __u64 delay_ns, __u32 weight)
{
	struct weir_flow_config *config = bpf_map_lookup_elem(&flow_configs, &number);
	void *table = bpf_map_lookup_elem(&flow_tables, &number);
	struct weir_bucket *bucket;
	__u32 i;

	if (!config || !table)
		return;
	bucket = weir_bucket_of(table, hash, config->bucket_mask);
	if (!bucket)
		return;
#pragma unroll
	for (i = 0; i < WEIR_WAYS; i++)
		if (weir_holds(bucket->tags[i], hash)) {
			/* Of a long one the last count most, and nothing wraps. */
			if (bucket->flows[i].delay_packets >> 30) {
				bucket->flows[i].delay_packets >>= 1;
				bucket->flows[i].delay_ns >>= 1;
			}
			__sync_fetch_and_add(&bucket->flows[i].delay_ns, delay_ns * weight);
			__sync_fetch_and_add(&bucket->flows[i].delay_packets, weight);
			return;
		}
}

/* Counts the delay of a packet with this stamp, priority and hash. */
static __always_inline int count(const struct net_device *dev,
				 const struct weir_stamp *stamp, __u32 priority, __u32 hash)
{
	__u32 tag = stamp->head & WEIR_STAMP_TAG_MASK;
	__u32 weight = stamp->head & WEIR_STAMP_RARE ? WEIR_STAMP_RARELY : 1, bucket;
	__u32 major = priority >> 16;
	struct weir_delays *histogram;
	__u64 now, then, delay_ns;

	if ((major != class_major && major != direct_major) ||
	    weir_netns(dev) != uplink_netns)
		return 0;
	now = bpf_ktime_get_ns();
	then = (__u64)stamp->time_ns_high << 32 | stamp->time_ns_low;
	delay_ns = now > then ? now - then : 0;
	if (tag >> WEIR_TAG_CLASS_SHIFT)
		count_flow(tag & WEIR_TAG_NUMBER_MASK, hash, delay_ns, weight);
	histogram = bpf_map_lookup_elem(&delays, &tag);
	if (!histogram)
		return 0;
	bucket = bucket_of(delay_ns);
	/* The compiler knows that it is in range; the verifier has to see it. */
	asm volatile("" : "+r"(bucket));
	if (bucket >= WEIR_DELAY_BUCKETS)
		return 0;
	__sync_fetch_and_add(&histogram->packets[bucket], weight);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(weir_transmit, const struct sk_buff *skb,
	     const struct net_device *dev)
{
	const struct weir_stamp *place;
	struct weir_stamp stamp;

	if (dev->ifindex != uplink_ifindex)
		return 0;
	place = (void *)skb->cb + bpf_core_field_offset(struct qdisc_skb_cb, data) +
		WEIR_STAMP_OFFSET;
	stamp.head = place->head;
	if ((stamp.head & WEIR_STAMP_MAGIC_MASK) != WEIR_STAMP_MAGIC)
		return 0;
	stamp.time_ns_low = place->time_ns_low;
	stamp.time_ns_high = place->time_ns_high;
	return count(dev, &stamp, skb->priority, skb->hash);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
