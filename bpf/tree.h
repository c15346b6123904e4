/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the trees of a classifier (docs/classifier.md, "The binary form").
 *
 * The agent has checked them: nodes lead to later nodes only, no path has more
 * tests than WEIR_MAX_DEPTH. The loops here end all the same, and no node leads
 * outside of the array. A classifier is one value of a map, trees and ports
 * together, so it is replaced as a whole; who is walking one goes on with it.
 *
 * Both stages are here, in the kernel: the second is asked once in a flow's life, and
 * user space would answer when the flow may be over.
 */
#ifndef WEIR_TREE_H
#define WEIR_TREE_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"

struct weir_classifier_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_classifier);
} weir_classifier_template SEC(".maps");

/* The classifier in use, or none. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct weir_classifier_map);
} trees SEC(".maps") = {};

/*
 * Words of features. Those of the first packet have their code as place; the code of
 * later ones is from 32 on.
 */
#define WEIR_LATE(code) ((code) - 16)

struct weir_words {
	__u32 of[WEIR_WORDS];
};

/* Where they are put together: they are too many for a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_words);
} flow_words SEC(".maps");

/* Makes the type known (BTF keeps what is used). */
const struct weir_classifier *weir_classifier_btf __attribute__((unused));

static __always_inline const struct weir_classifier *weir_classifier(void)
{
	__u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&trees, &zero);

	return inner ? bpf_map_lookup_elem(inner, &zero) : 0;
}

/* Of a port: what it stands for, 0 for nothing, or 1 + application type. */
static __always_inline __u32 weir_service(const struct weir_classifier *c, __u32 proto, __u32 port)
{
	__u64 place = (__u64)(proto == IPPROTO_UDP) << 16 | port;

	/* Older kernels take a number whose bytes were swapped for any number. */
	asm volatile("" : "+r"(place));
	return c->ports[place & (WEIR_PORTS - 1)];
}

static __always_inline __u32 weir_range(__u32 port)
{
	return port < 1024 ? 0 : port < 32768 ? 1 : port < 49152 ? 2 : 3;
}

/* Words of the features that the first packet has, by code. */
static __always_inline void weir_first_words(const struct weir_classifier *c,
					     const struct weir_flow *flow, __u32 *words)
{
	__u32 dst = bpf_ntohs(flow->initiator_is_b ? flow->tuple.port_a : flow->tuple.port_b);
	__u32 src = bpf_ntohs(flow->initiator_is_b ? flow->tuple.port_b : flow->tuple.port_a);
	__u32 proto = flow->tuple.proto;

	words[0] = proto;
	words[1] = src;
	words[2] = dst;
	words[3] = flow->mss;
	words[4] = flow->window;
	words[5] = flow->wscale;
	words[6] = flow->ttl;
	words[7] = flow->syn;
	words[8] = weir_service(c, proto, dst);
	words[9] = weir_service(c, proto, src);
	words[10] = words[8] ?: words[9];
	words[11] = weir_range(dst);
	words[12] = weir_range(src);
	words[13] = dst >> 8;
	words[14] = dst & 0xff;
}

/*
 * The leaf that a walk from a node ends at. Not inlined, so that the verifier looks at
 * it once.
 */
__noinline int weir_walk(const struct weir_words *words, __u32 at)
{
	const struct weir_classifier *c;
	int i;

	if (!words)
		return 0;
	c = weir_classifier();
	if (!c)
		return 0;
	for (i = 0; i < WEIR_MAX_DEPTH; i++) {
		const struct weir_node *node = &c->nodes[at & (WEIR_MAX_NODES - 1)];
		__u32 place = node->feature;

		if (place >= WEIR_WORDS)
			break;
		at = words->of[place] <= node->threshold ? node->left : node->right;
	}
	return at;
}

/* What the trees of a stage say; goes into the flow. */
static __always_inline int weir_vote(const struct weir_classifier *c, struct weir_flow *flow,
				     const struct weir_words *words, int stage)
{
	__u32 types[WEIR_MAX_TYPES] = {}, levels[4] = {}, best = 0, most, n, i;
	const __u16 *roots = stage ? c->second_roots : c->first_roots;

	n = stage ? c->second_trees : c->first_trees;
	for (i = 0; i < WEIR_MAX_TREES; i++) {
		const struct weir_node *leaf;

		if (i >= n)
			break;
		leaf = &c->nodes[weir_walk(words, roots[i]) & (WEIR_MAX_NODES - 1)];
		types[leaf->type & (WEIR_MAX_TYPES - 1)] += leaf->type_confidence;
		levels[leaf->level & 3] += leaf->level_confidence;
	}
	if (!n)
		return WEIR_CLASS_NONE;
	/* The first of equals. */
	most = types[0];
#pragma unroll
	for (i = 1; i < WEIR_MAX_TYPES; i++)
		if (types[i] > most) {
			most = types[i];
			best = i;
		}
	flow->type = best;
	flow->type_confidence = most / n;
	best = 0;
	most = levels[0];
#pragma unroll
	for (i = 1; i < 3; i++)
		if (levels[i] > most) {
			most = levels[i];
			best = i;
		}
	flow->level_confidence = most / n;
	flow->stage = stage + 1;
	/* A level that is not certain enough is BE. */
	flow->traffic_class = best + 1;
	flow->policer = WEIR_POLICER_NEW;
	if (most < c->min_confidence * n) {
		flow->traffic_class = WEIR_CLASS_BE;
		flow->policer = WEIR_POLICER_REFUSED;
	}
	return flow->traffic_class;
}

/* The verdict by the first packet; goes into the flow. */
__noinline int weir_first_stage(struct weir_flow *flow)
{
	const struct weir_classifier *c;
	struct weir_words *words;
	__u32 zero = 0;

	if (!flow)
		return WEIR_CLASS_NONE;
	c = weir_classifier();
	words = bpf_map_lookup_elem(&flow_words, &zero);
	if (!c || !words)
		return WEIR_CLASS_NONE;
	weir_first_words(c, flow, words->of);
	return weir_vote(c, flow, words, 0);
}

/* The verdict by the first packets with payload; goes into the flow. */
__noinline int weir_second_stage(struct weir_flow *flow)
{
	const struct weir_classifier *c;
	struct weir_words *words;
	__u32 zero = 0, largest = 0, smallest = ~0u, turns = 0, clients = 0, i;

	if (!flow)
		return WEIR_CLASS_NONE;
	c = weir_classifier();
	words = bpf_map_lookup_elem(&flow_words, &zero);
	if (!c || !words)
		return WEIR_CLASS_NONE;
	weir_first_words(c, flow, words->of);
	/* Lengths of one side that there were not. */
	__builtin_memset(&words->of[WEIR_LATE(48)], 0, 8 * sizeof(__u32));
#pragma unroll
	for (i = 0; i < WEIR_PAYLOADS; i++) {
		__u32 bytes = flow->lengths[i], responder = flow->responders >> i & 1;

		words->of[WEIR_LATE(32) + i] = responder ? 65536 - bytes : 65536 + bytes;
		if (responder && i - clients < 3)
			words->of[WEIR_LATE(52) + ((i - clients) & 3)] = bytes + 1;
		else if (!responder && clients < 3)
			words->of[WEIR_LATE(48) + (clients & 3)] = bytes + 1;
		clients += !responder;
		if (bytes > largest)
			largest = bytes;
		if (bytes < smallest)
			smallest = bytes;
		if (i && responder != (flow->responders >> (i - 1) & 1))
			turns++;
	}
	words->of[WEIR_LATE(56)] = flow->responders & 1 ? 2 : 1;
	words->of[WEIR_LATE(57)] = WEIR_PAYLOADS;
	words->of[WEIR_LATE(58)] = largest;
	words->of[WEIR_LATE(59)] = smallest;
	words->of[WEIR_LATE(60)] = turns;
	return weir_vote(c, flow, words, 1);
}

#endif
