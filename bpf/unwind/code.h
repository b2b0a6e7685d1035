/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Python code objects: what tells them apart, and what gives them their names. Those of a stack that is new are told
 * with it, so that what runs once and is gone still has its name. */
#pragma once

#include "unwind/walk.h"

#define PAGE 4096
#define IDENTITY_POINTERS 4 /* of a code object: file name, name, since 3.11 qualified name, line table */
#define CONTENT_WORDS 5     /* of line table and file name: length, hash value, what comes first */
#define RECENT 50           /* 2^10 ns */

/* What tells the code object apart from others that were or will be at its address. Its pointers alone do not: what
 * follows in its place often has parts in the places of its parts. */
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
	lines[1] = 0; /* hash values, */
	file[1] = 0;  /* which the interpreter computes some time */
	for (int i = 0; i < 3; i++)
		hash = mix(hash, pointers[i]);
	for (int i = 0; i < CONTENT_WORDS; i++)
		hash = mix(mix(hash, lines[i]), file[i]);
	return hash >> 32;
}

/* The same, not looked at again where it has been just before: it takes longer to put another code object there. */
static __always_inline __u32 recent_fingerprint(struct walk *walk, __u64 code)
{
	__u64 key = mix(~walk->generation, code), value = 0;
	bool known;
	struct found *found = recall(&found_codes, key, &value, &known);

	if (known && walk->now - (__u32)(value >> 32) < RECENT)
		return value;
	value = fingerprint(walk, code);
	remember(found, key, (__u64)walk->now << 32 | value);
	return value;
}

/* Reads memory as far as the page after the first can be read; gives the bytes. */
static __always_inline __u64 read_piece(void *to, __u32 size, __u64 address)
{
	__u32 first = PAGE - (address & (PAGE - 1));

	if (read_user(to, size, address))
		return size;
	if (first >= size || !read_user(to, first, address))
		return 0;
	return first;
}

/* Reads what a pointer in the code object points to. */
static __always_inline void read_pointed(struct piece *piece, void *to, __u32 size, __u64 pointer)
{
	read_word(&piece->address, pointer);
	piece->length = read_piece(to, size, piece->address);
}

static __always_inline void read_code(struct code *code, const struct python *python)
{
	code->pieces[0].address = code->address;
	code->pieces[0].length = read_piece(code->object, sizeof(code->object), code->address);
	read_pointed(&code->pieces[1], code->name, sizeof(code->name), code->address + python->code_name);
	read_pointed(&code->pieces[2], code->file, sizeof(code->file), code->address + python->code_file);
	read_pointed(&code->pieces[3], code->lines, sizeof(code->lines), code->address + python->code_lines);
}

/* Tells the code object in a word of the stack, unless that has been done. */
__attribute__((noinline)) int announce_code(struct walk *walk, __u32 index)
{
	struct code_key key = {};
	struct code *code;

	if (!walk || index >= MAX_WORDS - 1)
		return 0;
	key.address = walk->stack.words[index] & ((1ULL << 56) - 1);
	key.fingerprint = walk->stack.words[index + 1] >> 32;
	key.tgid = walk->stack.tgid;
	if (bpf_map_lookup_elem(&codes, &key))
		return 0;
	code = bpf_ringbuf_reserve(&notices, sizeof(*code), 0);
	if (!code) {
		count(DROP_NOTICES);
		return 0;
	}
	bpf_map_update_elem(&codes, &key, &key.tgid, BPF_ANY);
	code->kind = NOTICE_CODE;
	code->tgid = key.tgid;
	code->address = key.address;
	code->fingerprint = key.fingerprint;
	read_code(code, &walk->python);
	bpf_ringbuf_submit(code, notice_patient());
	return 0;
}

/* Tells the code objects of the stack that have not been. */
static __always_inline void announce_codes(struct walk *walk)
{
	for (__u32 i = 0; i < MAX_WORDS - 1; i++) {
		if (i >= walk->stack.length)
			break;
		if (walk->stack.words[i] >> 56 != WORD_PYTHON)
			continue;
		announce_code(walk, i);
		i++; /* over its second word */
	}
}
