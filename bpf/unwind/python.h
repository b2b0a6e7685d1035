/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Python frames. One native frame of the evaluation loop stands for one run of Python frames: each time the walk meets
 * the loop, it tells the frames of that run, innermost first. Offsets differ by version and come from user space. */
#pragma once

#include "unwind/code.h"
#include "task.h"

#define MAX_THREADS 512  /* interpreters and thread states looked at */
#define MAX_STATES 4     /* of one thread */
#define NO_STRUCT 0xffff /* thread_frame_indirect: none */

enum run { RUN_GOES_ON, RUN_ENDS };

static __always_inline int python_fails(struct walk *walk, enum python_error why)
{
	walk->stack.python = why;
	walk->frame = 0;
	return RUN_ENDS;
}

/* Whether the thread state that the last walk found still is in its interpreter's list, as its memory may have been
 * freed, and that interpreter still the newest, as the thread may have entered another. */
static __always_inline bool is_linked(struct walk *walk)
{
	const struct python *python = &walk->python;
	__u64 newest = 0, key = 0, previous = 0, next = 0;

	if (!walk->kept_thread || !read_word(&newest, python->interpreters) || newest != walk->kept_interpreter)
		return false;
	if (!read_word(&key, walk->kept_thread + python->thread_key) || key != walk->key)
		return false;
	if (!read_word(&previous, walk->kept_thread + python->thread_next - 8)) /* lists are double */
		return false;
	if (previous)
		read_word(&next, previous + python->thread_next);
	else
		read_word(&next, walk->kept_interpreter + python->interpreter_threads);
	return next == walk->kept_thread;
}

/* Goes on to the next thread state of this thread: it has one in each interpreter that it has run. 0: there is none. */
__attribute__((noinline)) int find_thread(struct walk *walk)
{
	__u64 interpreter, thread = 0, key = 0;

	if (!walk)
		return 0;
	interpreter = walk->interpreter;
	if (walk->thread && !read_word(&thread, walk->thread + walk->python.thread_next))
		return 0;
	for (int i = 0; i < MAX_THREADS; i++) {
		if (!thread) {
			__u64 from =
				interpreter ? interpreter + walk->python.interpreter_next : walk->python.interpreters;

			if (!read_word(&interpreter, from) || !interpreter)
				return 0;
			if (!read_word(&thread, interpreter + walk->python.interpreter_threads))
				return 0;
			continue;
		}
		if (!read_word(&key, thread + walk->python.thread_key))
			return 0;
		if (key == walk->key) {
			walk->interpreter = interpreter;
			walk->thread = thread;
			return 1;
		}
		if (!read_word(&thread, thread + walk->python.thread_next))
			return 0;
	}
	return 0;
}

/* Puts the innermost frame of the thread state into the walk. */
static __always_inline bool read_innermost(struct walk *walk)
{
	__u64 at = walk->thread + walk->python.thread_frame;

	if (walk->python.thread_frame_indirect != NO_STRUCT) {
		if (!read_word(&at, at) || !at)
			return false;
		at += walk->python.thread_frame_indirect;
	}
	return read_word(&walk->frame, at);
}

/* Finds the thread when the evaluation loop is first met. */
static __always_inline bool start_python(struct walk *walk)
{
	walk->key = thread_key();
	walk->interpreter = 0;
	if (is_linked(walk)) {
		walk->interpreter = walk->kept_interpreter;
		walk->thread = walk->kept_thread;
	} else if (!find_thread(walk)) {
		return false;
	}
	walk->kept_interpreter = walk->interpreter;
	walk->kept_thread = walk->thread;
	return read_innermost(walk);
}

/* A field of the frame in the buffer. */
static __always_inline __u64 frame_word(const struct walk *walk, __u16 offset)
{
	__u32 index = offset / 8;

	return index < FRAME_BYTES / 8 ? walk->buffer[index] : 0;
}

static __always_inline __u8 frame_byte(const struct walk *walk, __u16 offset)
{
	return frame_word(walk, offset) >> (offset % 8 * 8);
}

/* Byte offset of the instruction that the frame in the buffer stands at. */
static __always_inline __u32 instruction_offset(const struct walk *walk, __u64 code)
{
	const struct python *python = &walk->python;
	__u64 word = frame_word(walk, python->frame_instruction);

	if (python->style != PYTHON_OBJECTS)
		return word - (code + python->code_bytes);
	return (__u32)(word >> (python->frame_instruction % 8 * 8)) * python->instruction_scale;
}

static __always_inline bool push_python(struct walk *walk)
{
	__u64 code = frame_word(walk, walk->python.frame_code) & ~7ULL; /* 3.14 keeps flags in the lowest bits */

	if (walk->stack.length + 2 > MAX_WORDS) {
		walk->stack.end = END_LIMIT;
		return false;
	}
	push(walk, word_of(WORD_PYTHON, code));
	return push(walk, (__u64)recent_fingerprint(walk, code) << 32 | instruction_offset(walk, code));
}

/* Tells one frame. */
__attribute__((noinline)) int step_python(struct walk *walk)
{
	enum python_style style;
	__u32 size;
	__u8 entry;

	if (!walk || !walk->frame)
		return RUN_ENDS;
	style = walk->python.style;
	size = walk->python.frame_bytes;
	if (size > FRAME_BYTES || !read_user(walk->buffer, size, walk->frame))
		return python_fails(walk, PYTHON_MEMORY);
	walk->frame = frame_word(walk, walk->python.frame_back);
	entry = frame_byte(walk, walk->python.frame_entry);
	if (style == PYTHON_ENTRY_FRAME && entry >= walk->python.first_entry_owner)
		return RUN_ENDS;
	if (!push_python(walk))
		return RUN_ENDS;
	if (style == PYTHON_OBJECTS || (style == PYTHON_ENTRY_FLAG && entry))
		return RUN_ENDS;
	return RUN_GOES_ON;
}

static __always_inline void walk_run(struct walk *walk)
{
	for (int i = 0; i < MAX_WORDS / 2; i++)
		if (step_python(walk) == RUN_ENDS)
			break;
}

/* Puts what user space told of the interpreter into the walk. */
static __always_inline bool load_python(struct walk *walk)
{
	__u32 tgid = walk->stack.tgid; /* the key: see find_table */
	struct python *python;

	if (walk->has_python)
		return true;
	python = bpf_map_lookup_elem(&pythons, &tgid);
	if (python)
		walk->python = *python;
	walk->has_python = python;
	return python;
}

/* Tells the frames of the run that a native frame of the evaluation loop stands for. Where a thread state has no more,
 * the thread is in the loop with another: of a sub-interpreter, or one made for a short while. */
__attribute__((noinline)) int walk_python(struct walk *walk)
{
	__u32 before;

	if (!walk)
		return 0;
	before = walk->stack.length;
	if (!load_python(walk) || walk->stack.python == PYTHON_NO_THREAD)
		return 0;
	if (!walk->thread && !start_python(walk))
		return python_fails(walk, PYTHON_NO_THREAD);
	for (int i = 0; i < MAX_STATES; i++) {
		walk_run(walk);
		if (walk->stack.length > before || walk->frame || walk->stack.python)
			return 0;
		if (!find_thread(walk) || !read_innermost(walk))
			break;
	}
	return python_fails(walk, PYTHON_NO_THREAD);
}

/* Tells what no native frame stood for: an exception that is thrown into a generator that delegates to another leaves
 * the first one's frame, up to 3.11, on the interpreter's stack alone. */
static __always_inline void finish_python(struct walk *walk)
{
	for (int i = 0; i < MAX_WORDS / 2 && walk->frame; i++)
		step_python(walk);
}

/* Whether walk->address is in the evaluation loop. */
static __always_inline bool in_loop(struct walk *walk)
{
	if (walk->mapping.kind != MAPPING_INTERPRETER || !load_python(walk))
		return false;
	for (int i = 0; i < PYTHON_RANGES; i++) {
		const struct code_range *range = &walk->python.loop[i];

		if (walk->address - range->start < range->end - range->start)
			return true;
	}
	return false;
}
