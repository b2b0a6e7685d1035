/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Byte-Poisson sampling. Each thread draws the distance to its next sample, in bytes, from an
 * exponential distribution with mean `interval`. An allocation of S bytes is sampled with
 * p = 1 - exp(-S / interval), as in tcmalloc:
 * https://github.com/google/tcmalloc/blob/master/docs/sampling.md */
#pragma once

#include "types.h"

#include "bpf_helpers.h"

#define LOG2_STEPS_BITS 6 /* 64 steps of the table between two powers of two */
#define FRACTION_BITS 24  /* fixed point of the table and of logarithms */
#define LN2 2977044471ULL /* ln 2, 32 fraction bits */

/* log2(1 + i/64), FRACTION_BITS fraction bits. Linear interpolation is off by less than 4.5e-5. */
static const __u32 log2_table[(1 << LOG2_STEPS_BITS) + 1] = {
	0,        375270,   744810,   1108793,  1467383,  1820738,  2169009,  2512340,  2850868,
	3184728,  3514044,  3838941,  4159533,  4475935,  4788255,  5096595,  5401057,  5701737,
	5998727,  6292118,  6581994,  6868440,  7151536,  7431359,  7707984,  7981483,  8251926,
	8519380,  8783912,  9045584,  9304457,  9560591,  9814042,  10064867, 10313120, 10558852,
	10802114, 11042956, 11281425, 11517568, 11751428, 11983051, 12212479, 12439752, 12664911,
	12887994, 13109041, 13328087, 13545168, 13760320, 13973576, 14184969, 14394532, 14602297,
	14808293, 15012551, 15215099, 15415967, 15615181, 15812769, 16008758, 16203172, 16396036,
	16587377, 16777216,
};

/* Returns the position of the highest bit set in x > 0. */
static __always_inline __u32 highest_bit(__u32 x)
{
	__u32 bit = 0;

	for (__u32 shift = 16; shift > 0; shift /= 2) {
		if (x >> shift) {
			x >>= shift;
			bit += shift;
		}
	}
	return bit;
}

/* Returns -ln(x / 2^32) for x > 0, with FRACTION_BITS fraction bits. */
static __always_inline __u64 negative_log(__u32 x)
{
	__u32 bit = highest_bit(x);
	__u32 mantissa = x << (31 - bit); /* 1.31 */
	__u32 step = (mantissa >> (31 - LOG2_STEPS_BITS)) & ((1 << LOG2_STEPS_BITS) - 1);
	__u64 rest = mantissa & ((1U << (31 - LOG2_STEPS_BITS)) - 1);
	__u64 log = ((__u64)bit << FRACTION_BITS) + log2_table[step];

	log += ((__u64)(log2_table[step + 1] - log2_table[step]) * rest) >> (31 - LOG2_STEPS_BITS);
	return ((((__u64)32 << FRACTION_BITS) - log) * LN2) >> 32;
}

/* Returns the bytes to the next sample: exponential with the given mean (at most 2^32), rounded up,
 * so that P(draw <= S) = p for whole S. */
static __always_inline __u64 draw_exponential(__u64 mean)
{
	__u32 uniform = bpf_get_prandom_u32();
	__u64 bytes = mean * negative_log(uniform ? uniform : 1) + (1 << FRACTION_BITS) - 1;

	bytes >>= FRACTION_BITS;
	return bytes ? bytes : 1;
}

/* Position of a thread between two samples. */
struct sampler {
	__u64 interval; /* mean bytes with which `until` was drawn; 0: not drawn yet */
	__u64 until;    /* bytes to the next sample */
};

/* Returns whether to sample an allocation of `size` bytes. A new interval starts with a new draw:
 * the Poisson process has no memory. */
static __always_inline bool take_sample(struct sampler *sampler, __u64 interval, __u64 size)
{
	bool taken;

	if (interval <= 1)
		return true;

	if (sampler->interval != interval) {
		sampler->interval = interval;
		sampler->until = draw_exponential(interval);
	}

	taken = sampler->until <= size;
	sampler->until = taken ? draw_exponential(interval) : sampler->until - size;
	return taken;
}
