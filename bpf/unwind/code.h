/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Python code objects: their fingerprints, and the memory that their names are made of. A new stack
 * is reported with its code objects, so that code that runs once and is freed still has a name. */
#pragma once

#include "unwind/walk.h"

/* Every page size is a multiple, so that a read that ends here never crosses a page. */
#define MIN_PAGE_SIZE 4096
#define FINGERPRINT_MAX_AGE 50 /* 2^10 ns */

/* Returns a hash that distinguishes the code object from others at its address, before or after. It
 * covers the pointers to file name, name, line table and, since 3.11, qualified name. As a later
 * object is often given the same memory, it also covers the first words of line table and file
 * name: length, hash value, content. tracer/python computes the same. */
static __always_inline __u32 fingerprint(struct walk *walk, __u64 code)
{
	const struct python *python = &walk->python;
	__u64 pointers[IDENTITY_POINTERS] = {}, lines[CONTENT_WORDS] = {}, file[CONTENT_WORDS] = {};
	__u64 hash = 0, at;

	if (!read_user(pointers, sizeof(pointers), code + python->code_file)) {
		walk->stack.python = PYTHON_MEMORY;
		return 0;
	}

	at = python->code_lines - python->code_file == 16 ? pointers[2] : pointers[3];
	read_user(lines, sizeof(lines), at + python->bytes_size);
	read_user(file, sizeof(file), pointers[0] + python->text_length);

	/* ob_shash and hash, which the interpreter sets at any time */
	lines[1] = 0;
	file[1] = 0;

	for (int i = 0; i < 3; i++)
		hash = mix(hash, pointers[i]);
	for (int i = 0; i < CONTENT_WORDS; i++)
		hash = mix(mix(hash, lines[i]), file[i]);
	return hash >> 32;
}

/* Returns the fingerprint, from the cache for FINGERPRINT_MAX_AGE: another code object cannot take
 * its place so soon. */
static __always_inline __u32 recent_fingerprint(struct walk *walk, __u64 code)
{
	__u64 key = mix(~walk->generation, code), value = 0;
	bool hit;
	struct cache_entry *entry = cache_lookup(&fingerprint_cache, key, &value, &hit);

	if (hit && walk->now - (__u32)(value >> 32) < FINGERPRINT_MAX_AGE)
		return value;

	value = fingerprint(walk, code);
	cache_store(entry, key, (__u64)walk->now << 32 | value);
	return value;
}

/* Reads memory, or only up to the next page if that is unreadable. Returns the bytes read. */
static __always_inline __u64 read_piece(void *to, __u32 size, __u64 address)
{
	__u32 first = MIN_PAGE_SIZE - (address & (MIN_PAGE_SIZE - 1));

	if (read_user(to, size, address))
		return size;

	if (first >= size || !read_user(to, first, address))
		return 0;
	return first;
}

/* Reads the memory to which a pointer in the code object points. */
static __always_inline void read_pointed_piece(struct piece *piece, void *to, __u32 size,
					       __u64 pointer)
{
	read_word(&piece->address, pointer);
	piece->length = read_piece(to, size, piece->address);
}

/* Reads the pieces of a code object. */
static __always_inline void read_code(struct code *code, const struct python *python)
{
	code->pieces[0].address = code->address;
	code->pieces[0].length = read_piece(code->object, sizeof(code->object), code->address);
	read_pointed_piece(&code->pieces[1], code->name, sizeof(code->name),
			   code->address + python->code_name);
	read_pointed_piece(&code->pieces[2], code->file, sizeof(code->file),
			   code->address + python->code_file);
	read_pointed_piece(&code->pieces[3], code->lines, sizeof(code->lines),
			   code->address + python->code_lines);
}

/* Reports a code object, unless it has been reported. */
static __always_inline void report_code(struct walk *walk, __u64 address, __u32 fingerprint)
{
	struct code_key key = {};
	struct usage *usage = usage_of(walk->stack.tgid);
	struct code *code = NULL;

	key.address = address;
	key.fingerprint = fingerprint;
	key.tgid = walk->stack.tgid;
	if (bpf_map_lookup_elem(&reported_codes, &key))
		return;

	if (may_send(usage, sizeof(*code)))
		code = bpf_ringbuf_reserve(&events, sizeof(*code), 0);
	if (!code) {
		lose(usage, DROP_EVENTS, 0);
		return;
	}

	bpf_map_update_elem(&reported_codes, &key, &key.tgid, BPF_ANY);
	code->kind = EVENT_CODE;
	code->tgid = key.tgid;
	code->address = key.address;
	code->fingerprint = key.fingerprint;
	read_code(code, &walk->python);
	bpf_ringbuf_submit(code, lazy_wakeup());
}

/* Reports the code object of the next frame of the stack, if it has one. Returns 0 if there is no
 * frame. */
__attribute__((noinline)) int report_next_code(struct walk *walk)
{
	__u32 index, second;
	__u64 word;

	if (!walk || walk->cursor >= walk->stack.length)
		return 0;

	index = word_index(&walk->stack, walk->cursor++);
	if (index >= MAX_WORDS)
		return 0;
	word = walk->stack.words[index];
	if (word >> WORD_KIND_SHIFT != WORD_PYTHON)
		return 1;

	second = word_index(&walk->stack, walk->cursor++);
	if (second >= MAX_WORDS)
		return 0;
	report_code(walk, word_address(word), walk->stack.words[second] >> 32);
	return 1;
}

/* Reports the code objects of the stack that have not been reported. */
static __always_inline void report_codes(struct walk *walk)
{
	walk->cursor = 0;
	for (int i = 0; i < MAX_WORDS; i++)
		if (!report_next_code(walk))
			break;
}
