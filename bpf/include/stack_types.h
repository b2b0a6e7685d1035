/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the two sides share about stacks: how they are told, unwind tables, mappings, the interpreter. */
#pragma once

#include "types.h"

#define MAX_WORDS 320     /* of a stack: a native frame takes one, a Python frame two */
#define MAX_MAPPINGS 4096 /* executable mappings of a process */
#define MAX_TABLES 16384  /* files with unwind tables */
#define MAX_PROCESSES 64  /* traced at a time */
#define PYTHON_RANGES 8   /* pieces of the evaluation loop */
#define CODE_PIECES 4     /* of a code object */
#define PAGE_BITS 10      /* unwind rows are indexed by pages of that many address bits */

/* What a word of a stack is, in its highest byte; the rest is an address. */
enum word_kind {
	WORD_NATIVE,        /* program counter: [0] the instruction itself, else a return address */
	WORD_INTERRUPTED,   /* program counter that a signal interrupted: the instruction itself */
	WORD_FRAME_POINTER, /* return address that a frame pointer led to */
	WORD_PYTHON,        /* code object; the next word is its fingerprint << 32 | byte offset of the instruction */
};

/* Why a stack ends. */
enum stack_end {
	END_WHOLE,         /* at the start of the thread */
	END_LIMIT,         /* more words than there are */
	END_NOT_READY,     /* code whose unwind table is still being made */
	END_UNMAPPED,      /* an address that is not known to be executable */
	END_NO_RULE,       /* code that its file has no unwind rule for */
	END_UNSUPPORTED,   /* a rule that the unwinder does not follow */
	END_STACK_MEMORY,  /* stack memory could not be read */
	END_FRAME_POINTER, /* code without unwind information, and no frame pointer */
	STACK_ENDS,
};

/* Why Python frames are missing from a stack. */
enum python_error {
	PYTHON_FINE,
	PYTHON_NO_THREAD, /* the interpreter does not list the thread */
	PYTHON_MEMORY,    /* the interpreter's memory could not be read */
	PYTHON_ERRORS,
};

/* A stack as it is first seen: a record of the ring buffer, cut after the words used. */
struct stack {
	enum notice_kind kind; /* NOTICE_STACK */
	__u32 tgid;
	__u64 id;     /* a hash of all that follows and of tgid */
	__u32 length; /* words used */
	enum stack_end end;
	enum python_error python;
	__u32 reserved;
	__u64 words[MAX_WORDS];
};

/* How to find the frame that called: the canonical frame address (CFA, the stack pointer before the call), the return
 * address, and the caller's frame pointer. */
enum rule_kind {
	RULE_NONE,            /* no code, or code without unwind information */
	RULE_UNSUPPORTED,     /* unwind information that has no form here */
	RULE_STOP,            /* the thread starts here */
	RULE_SP,              /* CFA = sp + cfa_offset */
	RULE_FP,              /* CFA = fp + cfa_offset */
	RULE_SP_DEREF,        /* CFA = *(sp + cfa_offset) + extra */
	RULE_FP_DEREF,        /* CFA = *(fp + cfa_offset) + extra */
	RULE_REGISTER,        /* CFA = the register `extra` + cfa_offset; where the thread stands only */
	RULE_RETURN_REGISTER, /* CFA = sp + cfa_offset, return address in the register `extra`; there only */
	RULE_PLT,             /* CFA = sp + 8, or + 16 from byte 11 of an entry of 16 on (x86-64) */
	RULE_SIGNAL,          /* all registers are in the signal frame that sp points to */
	RULE_FRAME_POINTER,   /* both are at the frame pointer */
	/* In no table: */
	RULE_GUESS,     /* code without unwind information: perhaps both are at the frame pointer */
	RULE_NOT_READY, /* the table is still being made */
};

/* Where the caller's frame pointer is. */
enum fp_rule {
	FP_SAME,   /* unchanged. arm64: the return address still is in the link register */
	FP_AT_CFA, /* *(CFA + fp_offset). arm64: the return address is there, the frame pointer unchanged */
	FP_AT_FP,  /* *(fp + fp_offset) */
	FP_FRAME,  /* arm64: the return address is at CFA + fp_offset, the frame pointer 8 bytes below it */
};

/* One rule of an unwind table. */
struct rule {
	__u8 kind; /* enum rule_kind, on the way through the kernel with RULE_IN_LOOP */
	__u8 fp;   /* enum fp_rule, and `extra` << 4: bytes / 8 of a DEREF, or enum leaf_register */
	__s16 fp_offset;
	__s32 cfa_offset;
};

#define RULE_IN_LOOP 0x80 /* the code is Python's evaluation loop */

/* Registers that a rule may name where the thread stands (x86-64). */
enum leaf_register {
	LEAF_RAX,
	LEAF_RDI,
	LEAF_R8,
	LEAF_R9,
	LEAF_R11,
	LEAF_R13,
	LEAF_R15,
	LEAF_REGISTERS,
};

/* The beginning of an unwind table. What follows is counted in words of 4 bytes from the start of the table:
 *   index  from word 4 on, pages + 1 words: number of the first row of each page of 2^PAGE_BITS addresses
 *   rows   address within its page << 16 | number of its rule; a row holds up to the next
 *   rules  struct rule, two words each
 * Addresses count from the first page. One before a page's first row belongs to the last row before; row 0 is at
 * address 0. A table without pages: the file has no unwind information. */
struct table_header {
	__u32 pages;
	__u32 base;  /* first page: ELF virtual address >> PAGE_BITS */
	__u32 rows;  /* offset of the rows */
	__u32 rules; /* offset of the rules, even */
};

enum mapping_kind {
	MAPPING_TABLE,       /* has an unwind table, or will have one */
	MAPPING_INTERPRETER, /* the same, and holds Python's evaluation loop */
	MAPPING_ANONYMOUS,   /* generated code: frame pointers are all there is */
};

/* One executable mapping of a process. Element 0 of a process's array has their number in `start` and in `bias` a
 * number that no other array had; the others are sorted by address. */
struct mapping {
	__u64 start; /* addresses of the process */
	__u64 end;
	__u64 bias;  /* address - bias: ELF virtual address */
	__u32 table; /* index of its table, which may not be made yet; 0: there was no room for it */
	enum mapping_kind kind;
};

/* Memory of the process, cut where the next page cannot be read. */
struct piece {
	__u64 address;
	__u64 length; /* bytes */
};

/* What makes the name of a code object that is new, read while it runs: another may be in its place a moment later. A
 * record of the ring buffer. */
struct code {
	enum notice_kind kind; /* NOTICE_CODE */
	__u32 tgid;
	__u64 address;
	__u32 fingerprint;
	__u32 reserved;
	struct piece pieces[CODE_PIECES]; /* of the object, its name, its file name, its line table; the bytes follow */
	__u8 object[256];
	__u8 name[512];
	__u8 file[512];
	__u8 lines[2560];
};

/* How the interpreter keeps its frames. */
enum python_style {
	PYTHON_OBJECTS,     /* 3.8-3.10: a frame object for each run of the evaluation loop */
	PYTHON_ENTRY_FLAG,  /* 3.11: frames in chunks, the first of a run is flagged */
	PYTHON_ENTRY_FRAME, /* 3.12 and later: a run ends with a frame that the C stack owns */
};

/* A piece of code. */
struct code_range {
	__u64 start; /* addresses of the process */
	__u64 end;
};

/* Where a process's interpreter is, and the offsets in its structures, in bytes. */
struct python {
	__u64 interpreters;                    /* address of the pointer to the newest interpreter */
	struct code_range loop[PYTHON_RANGES]; /* the evaluation loop; unused: 0 */
	enum python_style style;
	__u16 interpreter_next;
	__u16 interpreter_threads; /* the pointer to the newest thread state */
	__u16 thread_next;
	__u16 thread_key;            /* x86-64: thread_id, which is the thread pointer; arm64: native_thread_id */
	__u16 thread_frame;          /* the pointer to the innermost frame, or to the struct that holds that pointer */
	__u16 thread_frame_indirect; /* offset of the pointer in that struct; ~0: there is no such struct */
	__u16 frame_code;
	__u16 frame_back;
	__u16 frame_instruction; /* pointer to the instruction; PYTHON_OBJECTS: its index, an int */
	__u16 frame_entry;       /* the entry flag or the owner, a byte */
	__u16 code_bytes;        /* start of the bytecode in the code object */
	__u16 code_name;         /* pointer to the name: the qualified one where there is one */
	__u16 code_file;         /* pointer to the file name */
	__u16 code_lines;        /* pointer to the line table: the second or third after that to the file name */
	__u16 bytes_size;        /* in a bytes object: length, hash value, data follow each other */
	__u16 text_length;       /* in a string: length, hash value, state and data follow each other */
	__u16 frame_bytes;       /* size of the part of a frame that holds the fields above */
	__u8 first_entry_owner;  /* PYTHON_ENTRY_FRAME: owners from this on end a run */
	__u8 instruction_scale;  /* PYTHON_OBJECTS: bytes per unit of the index */
};
