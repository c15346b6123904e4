/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Polices the EF that the classifier gave a flow.
 *
 * A wrong EF delays every urgent flow of the container, a wrong BE only itself. So a
 * flow keeps its EF while it sends little: weir_police weighs what the container sends
 * in two leaky buckets. In one a packet weighs its bytes times the square of its part of
 * a full one, so a packet of voice weighs a fiftieth of what its bytes of a transfer do.
 * A flow that overfills a bucket is bulk, which is BE until both have drained: seconds
 * of quiet (hysteresis), so it does not flap.
 *
 * Leaky bucket: Turner, "New directions in communications", 1986. The definition is
 * internal/apps/policer.go; a test compares the two.
 */
#ifndef WEIR_POLICE_H
#define WEIR_POLICE_H

#include <linux/bpf.h>

#include "intf.h"
#include "table.h"

/* What a flow may send and keep EF. A millisecond is one of weir_now_ms, 2^20 ns. */
enum {
	/* Full packets: 16 KiB at once, what TCP begins with (RFC 6928); then 61 kbit/s. */
	WEIR_LARGE_BYTES = 16 << 10,
	WEIR_LARGE_BYTES_MS = 8,
	/* Packets of any size: 64 KiB at once; then 1.9 Mbit/s. */
	WEIR_ALL_BYTES = 64 << 10,
	WEIR_ALL_BYTES_MS = 250,
	/* In the bucket of large packets of a flow that is bulk: it drains in 9 s. */
	WEIR_BULK_BYTES = 64 << 10,
	/* That there is where its container has too much EF: two full packets. */
	WEIR_DEMOTE_BYTES = 2 * 1448,
	/* Payload of a full packet; its square is about 2 ^ this. */
	WEIR_FULL_BYTES = 1448,
	WEIR_FULL_SQUARE_SHIFT = 21,
};

static __always_inline __u32 weir_drain(__u32 bytes, __u32 drained)
{
	return bytes > drained ? bytes - drained : 0;
}

/* The class of a packet that the container sends, of a flow that is EF by its verdict. */
static __always_inline __u32 weir_police(struct weir_flow *flow, __u32 bytes, __u32 size,
				       __u32 now_ms)
{
	struct weir_load *load = &flow->load;
	__u32 passed_ms, run_ms;

	if (flow->policer == WEIR_POLICER_NEW) {
		__builtin_memset(load, 0, sizeof(*load));
		load->drained_ms = now_ms;
		flow->policer = WEIR_POLICER_CONFORMS;
	}
	passed_ms = weir_silent_ms(now_ms, load->drained_ms);
	if (passed_ms) {
		load->drained_ms = now_ms;
		load->large = weir_drain(load->large, passed_ms * WEIR_LARGE_BYTES_MS);
		load->all = weir_drain(load->all, passed_ms * WEIR_ALL_BYTES_MS);
	}
	if (!load->large && !load->all) {
		flow->policer = WEIR_POLICER_CONFORMS;
		load->run_bytes = flow->run_ms = 0;
		passed_ms = 0;
	}
	if (size > WEIR_FULL_BYTES)
		size = WEIR_FULL_BYTES;
	load->large += (__u64)bytes * (size * size) >> WEIR_FULL_SQUARE_SHIFT;
	load->all += bytes;
	if (flow->policer == WEIR_POLICER_CONFORMS) {
		load->run_bytes += bytes;
		run_ms = flow->run_ms + passed_ms;
		flow->run_ms = run_ms > 0xffff ? 0xffff : run_ms;
		if (load->large <= WEIR_LARGE_BYTES && load->all <= WEIR_ALL_BYTES)
			return WEIR_CLASS_EF;
		flow->policer = WEIR_POLICER_BULK;
		load->large = WEIR_BULK_BYTES;
	}
	if (load->large > WEIR_BULK_BYTES)
		load->large = WEIR_BULK_BYTES;
	if (load->all > WEIR_ALL_BYTES)
		load->all = WEIR_ALL_BYTES;
	return WEIR_CLASS_BE;
}

#endif
