/* SPDX-License-Identifier: Apache-2.0 */
/* The probes, as SystemTap notes:
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation. A probed instruction is a nop
 * of one byte, which the kernel emulates everywhere. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Probes may share a semaphore: the kernel raises it by one for each instruction that has a uprobe.
 * Its section lies in the file, since a uprobe names a semaphore by its offset there. */
#define SEMAPHORE(name)                                                                            \
	asm(".pushsection .probes, \"aw\", %progbits\n"                                            \
	    ".balign 2\n"                                                                          \
	    ".hidden " #name "_semaphore\n"                                                        \
	    ".globl " #name "_semaphore\n"                                                         \
	    ".type " #name "_semaphore, %object\n"                                                 \
	    ".size " #name "_semaphore, 2\n" #name "_semaphore: .2byte 0\n"                        \
	    ".popsection\n");                                                                      \
	extern volatile uint16_t name##_semaphore __attribute__((visibility("hidden")))

/* A nop, and the note that says where it is. */
#define PROBE(provider, name, semaphore, arguments)                                                \
	"990: nop\n"                                                                               \
	".pushsection .note.stapsdt, \"\", %note\n"                                                \
	".balign 4\n"                                                                              \
	".4byte 992f - 991f, 994f - 993f, 3\n"                                                     \
	"991: .asciz \"stapsdt\"\n"                                                                \
	"992: .balign 4\n"                                                                         \
	"993: .8byte 990b\n"                                                                       \
	".8byte allocscope_stapsdt_base\n"                                                         \
	".8byte " #semaphore "_semaphore\n"                                                        \
	".asciz \"" #provider "\"\n"                                                               \
	".asciz \"" #name "\"\n"                                                                   \
	".asciz \"" arguments "\"\n"                                                               \
	"994: .balign 4\n"                                                                         \
	".popsection\n"

#define FUNCTION(name, body)                                                                       \
	asm(".pushsection .text\n"                                                                 \
	    ".balign 16\n"                                                                         \
	    ".hidden " #name "\n"                                                                  \
	    ".globl " #name "\n"                                                                   \
	    ".type " #name ", %function\n" #name ":\n"                                             \
	    ".cfi_startproc\n" body "ret\n"                                                        \
	    ".cfi_endproc\n"                                                                       \
	    ".size " #name ", . - " #name "\n"                                                     \
	    ".popsection\n")

#if defined(__x86_64__)
#define ARGUMENT_1 "8@%rdi"
#define ARGUMENT_2 "8@%rsi"
#define ARGUMENT_3 "8@%rdx"
#elif defined(__aarch64__)
#define ARGUMENT_1 "8@x0"
#define ARGUMENT_2 "8@x1"
#define ARGUMENT_3 "8@x2"
#endif

asm(".pushsection .stapsdt.base, \"a\", %progbits\n"
    ".hidden allocscope_stapsdt_base\n"
    "allocscope_stapsdt_base: .space 1\n"
    ".popsection\n");

SEMAPHORE(otel_memory_alloc);
SEMAPHORE(otel_memory_free);
SEMAPHORE(allocscope_start);
SEMAPHORE(allocscope_interval);
SEMAPHORE(allocscope_hold);

/* An object that was sampled, and how many bytes of the program's allocations it represents. */
void otel_memory_alloc(void *object, size_t size, uint64_t weighted_bytes)
	__attribute__((visibility("hidden")));
FUNCTION(otel_memory_alloc,
	 PROBE(otel_memory, alloc, otel_memory_alloc, ARGUMENT_1 " " ARGUMENT_2 " " ARGUMENT_3));

/* A sampled object is about to be freed. */
void otel_memory_free(void *object) __attribute__((visibility("hidden")));
FUNCTION(otel_memory_free, PROBE(otel_memory, free, otel_memory_free, ARGUMENT_1));

/* A program has begun. */
void allocscope_start(void) __attribute__((visibility("hidden")));
FUNCTION(allocscope_start, PROBE(allocscope, start, allocscope_start, ""));

/* Never called: a uprobe on one of these raises a semaphore, and costs nothing else. */
FUNCTION(allocscope_markers,
	 ".rept 32\n" PROBE(allocscope, hold, allocscope_hold, "")
		 PROBE(allocscope, interval, allocscope_interval, "") ".endr\n");
