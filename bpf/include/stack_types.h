/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Types about stacks that both sides share: stacks, unwind tables, executable mappings, and the
 * Python interpreter. */
#pragma once

#include "types.h"

#define MAX_PROCESSES 64 /* traced at a time */
#define PYTHON_RANGES 8  /* pieces of the evaluation loop (_PyEval_EvalFrameDefault) */
#define CODE_PIECES 4    /* pieces of a code object that are read */

/* Kind of a word of a stack, in the bits from WORD_KIND_SHIFT on; the rest is an address. */
enum word_kind {
	WORD_NATIVE,        /* program counter: in word 0 the instruction itself, else a return
			     * address */
	WORD_INTERRUPTED,   /* program counter that a signal interrupted: the instruction itself */
	WORD_FRAME_POINTER, /* return address found by a frame pointer */
	WORD_PYTHON,        /* address of a code object; the next word is
			     * fingerprint << 32 | byte offset of the instruction */
};

/* Why a stack ends. */
enum stack_end {
	END_COMPLETE,      /* at the start of the thread */
	END_LIMIT,         /* with MAX_LEFT_OUT frames left out */
	END_NOT_READY,     /* in code whose unwind table is still being built */
	END_UNMAPPED,      /* at an address outside all executable mappings */
	END_NO_RULE,       /* in code for which its file has no unwind rule */
	END_UNSUPPORTED,   /* at a rule that the unwinder does not support */
	END_STACK_MEMORY,  /* at unreadable stack memory */
	END_FRAME_POINTER, /* in code with neither unwind information nor a frame pointer */
	NUM_STACK_ENDS,
};

/* Why a stack lacks Python frames. */
enum python_error {
	PYTHON_OK,
	PYTHON_NO_THREAD, /* the interpreter's list has no state of this thread */
	PYTHON_MEMORY,    /* the interpreter's memory is unreadable */
	NUM_PYTHON_ERRORS,
};

/* Record of the ring buffer for a new stack, truncated after the words in use.
 *
 * A stack that is longer than MAX_WORDS lacks its middle. Its innermost frames are the words before
 * `tail`. From there on, the words are a ring with the outermost frames, which begins at `oldest`.
 */
struct stack {
	enum event_kind kind; /* EVENT_STACK */
	__u32 tgid;
	__u64 id;     /* hash of tgid, words in their order, and end */
	__u32 length; /* words in use */
	enum stack_end end;
	enum python_error python;
	__u32 left_out; /* frames between tail and oldest; 0: none, and no ring. Not in the ID, so
			 * that stacks that differ in depth alone are one */
	__u32 tail;     /* index in words */
	__u32 oldest;   /* index in words */
	__u64 words[MAX_WORDS];
};

/* How to find the caller: the canonical frame address (CFA, the stack pointer before the call),
 * the return address, and the caller's frame pointer. DWARF 5, section 6.4. */
enum rule_kind {
	RULE_NONE,            /* no code, or code without unwind information */
	RULE_UNSUPPORTED,     /* unwind information that these rules cannot express */
	RULE_STOP,            /* the thread starts here */
	RULE_SP,              /* CFA = sp + cfa_offset */
	RULE_FP,              /* CFA = fp + cfa_offset */
	RULE_SP_DEREF,        /* CFA = *(sp + cfa_offset) + extra */
	RULE_FP_DEREF,        /* CFA = *(fp + cfa_offset) + extra */
	RULE_REGISTER,        /* CFA = register `extra` + cfa_offset; innermost frame only */
	RULE_RETURN_REGISTER, /* CFA = sp + cfa_offset, return address in register `extra`;
			       * innermost frame only */
	RULE_PLT,             /* CFA = sp + 8, or sp + 16 from byte 11 of a 16-byte PLT entry on
			       * (x86-64) */
	RULE_SIGNAL,          /* all registers are in the signal frame at sp */
	RULE_FRAME_POINTER,   /* CFA and return address follow from the frame pointer */
	/* Never in a table: */
	RULE_GUESS,     /* no unwind information: try the frame pointer */
	RULE_NOT_READY, /* the table is still being built */
};

/* Where the caller's frame pointer is. */
enum fp_rule {
	FP_SAME,   /* unchanged. arm64: the return address is still in the link register */
	FP_AT_CFA, /* *(CFA + fp_offset). arm64: the return address is there, the frame pointer
		    * unchanged */
	FP_AT_FP,  /* *(fp + fp_offset) */
	FP_FRAME,  /* arm64: the return address is at CFA + fp_offset, the frame pointer 8 bytes
		    * below */
};

/* One rule of an unwind table. */
struct rule {
	__u8 kind; /* enum rule_kind; in a walk also RULE_FLAGS */
	__u8 fp;   /* enum fp_rule | extra << 4: bytes / 8 of a DEREF, or enum leaf_register */
	__s16 fp_offset;  /* bytes */
	__s32 cfa_offset; /* bytes */
};

#define RULE_IN_LOOP 0x80     /* the code is Python's evaluation loop */
#define RULE_IN_GREENLET 0x40 /* the code is in a MAPPING_GREENLET */
#define RULE_FLAGS (RULE_IN_LOOP | RULE_IN_GREENLET)

/* Registers of the innermost frame that a rule may name (x86-64). */
enum leaf_register {
	LEAF_RAX,
	LEAF_RDI,
	LEAF_R8,
	LEAF_R9,
	LEAF_R11,
	LEAF_R13,
	LEAF_R15,
	NUM_LEAF_REGISTERS,
};

/* Header of an unwind table. Offsets count 4-byte words from the start of the table:
 *   index  from word 4 on, pages + 1 words: number of the first row of each page of 2^PAGE_BITS
 *          addresses
 *   rows   address within its page << 16 | number of its rule; a row is valid up to the next
 *   rules  struct rule, two words each
 * Addresses are relative to the first page. An address before its page's first row belongs to the
 * row before; row 0 is at address 0. A table without pages belongs to a file without unwind
 * information. */
struct table_header {
	__u32 pages;
	__u32 base;  /* first page: ELF virtual address >> PAGE_BITS */
	__u32 rows;  /* offset of the rows */
	__u32 rules; /* offset of the rules, even */
};

enum mapping_kind {
	MAPPING_TABLE,       /* has an unwind table, or will have one */
	MAPPING_INTERPRETER, /* the same, and contains Python's evaluation loop */
	MAPPING_GREENLET,    /* the same, and contains the functions that greenlets begin with */
	MAPPING_ANONYMOUS,   /* JIT code: unwound by frame pointers alone */
};

/* One executable mapping of a process. In element 0 of a process's array, `start` is their number
 * and `bias` a number that no other array had. The other elements are sorted by address. */
struct mapping {
	__u64 start; /* virtual address in the process */
	__u64 end;
	__u64 bias;  /* address - bias is the ELF virtual address */
	__u32 table; /* index of the unwind table, which may not be built yet; 0: no room for it */
	enum mapping_kind kind;
};

/* Memory copied from the process, truncated before a page that is unreadable. */
struct piece {
	__u64 address;
	__u64 length; /* bytes */
};

/* Record of the ring buffer for a new code object: the memory that its names are made of. It is
 * copied while the code runs, as another object may be at the address a moment later. */
struct code {
	enum event_kind kind; /* EVENT_CODE */
	__u32 tgid;
	__u64 address;
	__u32 fingerprint;
	__u32 reserved;
	struct piece pieces[CODE_PIECES]; /* of the code object, its name, file name, line table */
	__u8 object[256];
	__u8 name[512];
	__u8 file[512];
	__u8 lines[2560];
};

/* How the interpreter links its frames. */
enum python_style {
	PYTHON_OBJECTS,     /* 3.8-3.10: a PyFrameObject for each run of the evaluation loop */
	PYTHON_ENTRY_FLAG,  /* 3.11: _PyInterpreterFrame, is_entry set in the first of a run */
	PYTHON_ENTRY_FRAME, /* 3.12 and later: a run ends with a frame owned by the C stack
			     * (FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER) */
};

/* Address range of code. */
struct code_range {
	__u64 start; /* virtual address in the process */
	__u64 end;
};

/* Where the interpreter of a process is, and offsets in its structs, in bytes. */
struct python {
	__u64 interpreters;                    /* address of _PyRuntime.interpreters.head */
	struct code_range loop[PYTHON_RANGES]; /* the evaluation loop; unused elements are 0 */
	enum python_style style;
	__u16 interpreter_next;
	__u16 interpreter_threads; /* pointer to the newest PyThreadState */
	__u16 thread_next;
	__u16 thread_key;            /* thread_id, which is pthread_self() */
	__u16 thread_frame;          /* pointer to the innermost frame, or to the struct with it */
	__u16 thread_frame_indirect; /* offset of that pointer in the struct (cframe);
				      * NO_INDIRECTION: none */
	__u16 frame_code;
	__u16 frame_back;
	__u16 frame_instruction; /* pointer to the instruction; PYTHON_OBJECTS: f_lasti, an int */
	__u16 frame_entry;       /* is_entry or owner, a byte */
	__u16 frame_tlbc;        /* tlbc_index, an int: the copy of the bytecode that it runs */
	__u16 code_bytes;        /* start of the bytecode in the code object */
	__u16 code_tlbc;         /* co_tlbc, pointer to the copies of the bytecode, one for each
				  * thread; 0: none (all but free-threaded 3.14) */
	__u16 code_name;         /* pointer to co_qualname, or to co_name before 3.11 */
	__u16 code_file;         /* pointer to co_filename */
	__u16 code_lines;        /* pointer to the line table: the second or third word after
				  * co_filename */
	__u16 bytes_size;        /* ob_size of a bytes object; hash and data follow */
	__u16 text_length;       /* length of a str object; hash, state and data follow */
	__u16 frame_bytes;       /* size of the part of a frame with the fields above */
	__u8 first_entry_owner;  /* PYTHON_ENTRY_FRAME: owners from this one on end a run */
	__u8 instruction_scale;  /* PYTHON_OBJECTS: bytes per unit of f_lasti */
};
