/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Python frames. A native frame of the evaluation loop (_PyEval_EvalFrameDefault) represents one
 * run of Python frames: each time the walk meets the loop, it pushes the frames of that run,
 * innermost first. Offsets differ between versions and come from user space. */
#pragma once

#include "task.h"

#include "unwind/code.h"

/* Interpreters and thread states that are searched. A process has fewer threads: each maps its
 * stack and a guard page, and vm.max_map_count is 65530. */
#define MAX_THREADS 65536
#define THREADS_AT_ONCE 256
#define MAX_STATES 4 /* thread states per thread */
#define FRAMES_AT_ONCE 4

#define NO_INSTRUCTION 0x7fffffff /* behind the end of every line table */

/* Whether a run has more frames. */
enum run { RUN_GOES_ON, RUN_ENDS };

/* How far a search for a thread state is. */
enum search { SEARCH_GOES_ON, SEARCH_FOUND, SEARCH_FAILED };

/* Ends a run for an error. */
static __always_inline int fail_python(struct walk *walk, enum python_error why)
{
	walk->stack.python = why;
	walk->frame = 0;
	return RUN_ENDS;
}

/* Returns whether the thread state that the last walk found is still valid. It must be in its
 * interpreter's list, as its memory may have been freed. That interpreter must be the newest, as
 * the thread may have entered another. */
static __always_inline bool is_still_linked(struct walk *walk)
{
	const struct python *python = &walk->python;
	__u64 newest = 0, key = 0, previous = 0, next = 0;

	if (!walk->cached_thread || !read_word(&newest, python->interpreters) ||
	    newest != walk->cached_interpreter)
		return false;

	if (!read_word(&key, walk->cached_thread + python->thread_key) ||
	    !is_thread(walk->key, key))
		return false;

	/* PyThreadState has `prev` before `next`. */
	if (!read_word(&previous, walk->cached_thread + python->thread_next - 8))
		return false;
	if (previous)
		read_word(&next, previous + python->thread_next);
	else
		read_word(&next, walk->cached_interpreter + python->interpreter_threads);
	return next == walk->cached_thread;
}

/* Looks at the thread state reached: is it one of this thread? If not, goes to the next one, or to
 * the next interpreter behind the last. A function of its own, as the verifier would follow each
 * turn of the loop apart. */
__attribute__((noinline)) int try_thread(struct walk *walk)
{
	__u64 from, key = 0;

	if (!walk)
		return SEARCH_FAILED;

	if (!walk->thread) {
		from = walk->interpreter ? walk->interpreter + walk->python.interpreter_next
					 : walk->python.interpreters;
		if (!read_word(&walk->interpreter, from) || !walk->interpreter)
			return SEARCH_FAILED;

		from = walk->interpreter + walk->python.interpreter_threads;
		return read_word(&walk->thread, from) ? SEARCH_GOES_ON : SEARCH_FAILED;
	}

	if (!read_word(&key, walk->thread + walk->python.thread_key))
		return SEARCH_FAILED;
	if (is_thread(walk->key, key))
		return SEARCH_FOUND;
	from = walk->thread + walk->python.thread_next;
	return read_word(&walk->thread, from) ? SEARCH_GOES_ON : SEARCH_FAILED;
}

/* Looks at the next thread states. A function of its own, as try_thread: the verifier would follow
 * all of MAX_THREADS in each program. */
__attribute__((noinline)) int try_threads(struct walk *walk)
{
	int result;

	for (int i = 0; i < THREADS_AT_ONCE; i++) {
		result = try_thread(walk);
		if (result != SEARCH_GOES_ON)
			return result;
	}
	return SEARCH_GOES_ON;
}

/* Finds the next state of this thread, which has one in each interpreter that it has entered.
 * Returns false if there is none. */
static __always_inline bool find_thread(struct walk *walk)
{
	int result;

	if (walk->thread && !read_word(&walk->thread, walk->thread + walk->python.thread_next))
		return false;

	for (int i = 0; i < MAX_THREADS / THREADS_AT_ONCE; i++) {
		result = try_threads(walk);
		if (result != SEARCH_GOES_ON)
			return result == SEARCH_FOUND;
	}
	return false;
}

/* Sets walk->frame to the innermost frame of the thread state. */
static __always_inline bool read_innermost(struct walk *walk)
{
	__u64 at = walk->thread + walk->python.thread_frame;

	if (walk->python.thread_frame_indirect != NO_INDIRECTION) {
		if (!read_word(&at, at) || !at)
			return false;
		at += walk->python.thread_frame_indirect;
	}

	return read_word(&walk->frame, at);
}

/* Finds the thread state when the walk first meets the evaluation loop. */
__attribute__((noinline)) int start_python(struct walk *walk)
{
	if (!walk)
		return 0;

	walk->key = thread_pointer();
	walk->interpreter = 0;

	if (is_still_linked(walk)) {
		walk->interpreter = walk->cached_interpreter;
		walk->thread = walk->cached_thread;
	} else if (!find_thread(walk)) {
		walk->thread = 0; /* where the search failed */
		return false;
	}

	walk->cached_interpreter = walk->interpreter;
	walk->cached_thread = walk->thread;
	if (read_innermost(walk))
		return true;
	walk->thread = 0;
	return false;
}

/* Returns a field of the frame in the buffer. */
static __always_inline __u64 frame_word(const struct walk *walk, __u16 offset)
{
	__u32 index = offset / 8;

	return index < FRAME_BYTES / 8 ? walk->buffer[index] : 0;
}

static __always_inline __u8 frame_byte(const struct walk *walk, __u16 offset)
{
	return frame_word(walk, offset) >> (offset % 8 * 8);
}

/* Returns an int of the frame in the buffer. */
static __always_inline __u32 frame_int(const struct walk *walk, __u16 offset)
{
	return frame_word(walk, offset) >> (offset % 8 * 8);
}

/* Returns the address of the bytecode that the frame in the buffer runs, 0 if it cannot be read. A
 * free-threaded interpreter has a copy of it for each thread, in a _PyCodeArray: their number, and
 * a pointer to each. */
static __always_inline __u64 bytecode(const struct walk *walk, __u64 code)
{
	const struct python *python = &walk->python;
	__u64 copies = 0, start = 0;

	if (!python->code_tlbc)
		return code + python->code_bytes;

	if (read_word(&copies, code + python->code_tlbc))
		read_word(&start, copies + 8 + 8ULL * frame_int(walk, python->frame_tlbc));
	return start;
}

/* Returns the byte offset of the instruction that the frame in the buffer is at, NO_INSTRUCTION if
 * it cannot be read. */
static __always_inline __u32 instruction_offset(const struct walk *walk, __u64 code)
{
	const struct python *python = &walk->python;
	__u64 start;

	if (python->style == PYTHON_OBJECTS)
		return frame_int(walk, python->frame_instruction) * python->instruction_scale;

	start = bytecode(walk, code);
	return start ? frame_word(walk, python->frame_instruction) - start : NO_INSTRUCTION;
}

/* Pushes the frame in the buffer. Returns false if the stack has too many. */
static __always_inline bool push_python_frame(struct walk *walk)
{
	__u64 code = frame_word(walk, walk->python.frame_code) &
		     ~7ULL; /* 3.14 keeps flags in the lowest bits */

	if (!make_room(walk, 2))
		return false;

	push_word(walk, make_word(WORD_PYTHON, code));
	push_word(walk,
		  (__u64)recent_fingerprint(walk, code) << 32 | instruction_offset(walk, code));
	return true;
}

/* Pushes one frame and steps to its caller. */
static __always_inline enum run step_python_frame(struct walk *walk)
{
	enum python_style style;
	__u32 size;
	__u8 entry;

	if (!walk->frame)
		return RUN_ENDS;

	style = walk->python.style;
	size = walk->python.frame_bytes;
	if (size > FRAME_BYTES || !read_user(walk->buffer, size, walk->frame))
		return fail_python(walk, PYTHON_MEMORY);

	walk->frame = frame_word(walk, walk->python.frame_back);
	entry = frame_byte(walk, walk->python.frame_entry);
	if (style == PYTHON_ENTRY_FRAME && entry >= walk->python.first_entry_owner)
		return RUN_ENDS;

	if (!push_python_frame(walk))
		return RUN_ENDS;
	if (style == PYTHON_OBJECTS || (style == PYTHON_ENTRY_FLAG && entry))
		return RUN_ENDS;
	return RUN_GOES_ON;
}

/* Pushes the next frames of a run. More than one, as the verifier follows each turn of the loops
 * that call this function. */
__attribute__((noinline)) int step_python_frames(struct walk *walk)
{
	enum run run = RUN_GOES_ON;

	if (!walk)
		return RUN_ENDS;
	for (int i = 0; i < FRAMES_AT_ONCE && run == RUN_GOES_ON; i++)
		run = step_python_frame(walk);
	return run;
}

/* Copies user space's data on the interpreter into the walk. */
static __always_inline bool load_python(struct walk *walk)
{
	__u32 tgid = walk->stack.tgid; /* a copy: see find_table() */
	struct python *python;

	if (walk->has_python)
		return true;

	python = bpf_map_lookup_elem(&pythons, &tgid);
	if (python)
		walk->python = *python;
	walk->has_python = python;
	return python;
}

/* Once a thread state has no more frames, the thread runs the loop with another one: of a
 * sub-interpreter, or a temporary one. Returns whether it has such a one. */
__attribute__((noinline)) int next_state(struct walk *walk)
{
	if (!walk || walk->hash != walk->before || walk->frame || walk->stack.python)
		return 0;
	if (++walk->states < MAX_STATES && find_thread(walk) && read_innermost(walk))
		return 1;
	fail_python(walk, PYTHON_NO_THREAD);
	return 0;
}

/* Pushes the frames of the run that a native frame of the evaluation loop represents. */
__attribute__((noinline)) int walk_python(struct walk *walk)
{
	int left = MAX_FRAMES / FRAMES_AT_ONCE;

	if (!walk || !load_python(walk) || walk->stack.python == PYTHON_NO_THREAD)
		return 0;
	if (!walk->thread && !start_python(walk))
		return fail_python(walk, PYTHON_NO_THREAD);

	walk->before = walk->hash;
	walk->states = 0;
	/* Ends with its condition: the verifier of Linux 5.15 and 6.1 takes no other back-edge. */
	do {
		if (step_python_frames(walk) == RUN_ENDS && !next_state(walk))
			break;
	} while (--left);
	return 0;
}

/* Returns whether the frame reached, which is in greenlet's library, is where the running greenlet
 * begins: Python has no frames before it. After an error, the frames that it has are not known. */
__attribute__((noinline)) int begins_greenlet(struct walk *walk)
{
	if (!walk || walk->stack.python || !load_python(walk) ||
	    (!walk->thread && !start_python(walk)))
		return 0;
	return !walk->frame;
}

/* Pushes frames that no native frame represents. Up to 3.11, an exception thrown into a generator
 * that delegates to another (yield from) leaves the first one's frame on the interpreter's stack
 * alone. */
static __always_inline void finish_python(struct walk *walk)
{
	for (int i = 0; i < MAX_WORDS / 2 && walk->frame; i++)
		step_python_frames(walk);
}

/* Returns whether walk->address is in the evaluation loop. */
static __always_inline bool in_eval_loop(struct walk *walk)
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
