/* SPDX-License-Identifier: Apache-2.0 */
/* Finds functions of the libraries that come after the shim, as dlsym(RTLD_NEXT) would. dlsym
 * allocates, and before glibc 2.34 a program may lack it. dl_iterate_phdr does neither. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct program_header { /* Elf64_Phdr */
	uint32_t type, flags;
	uint64_t offset, address, physical, file_size, memory_size, alignment;
};

struct dynamic { /* Elf64_Dyn */
	int64_t tag;
	uint64_t value;
};

struct symbol { /* Elf64_Sym */
	uint32_t name;
	uint8_t info, other;
	uint16_t section;
	uint64_t value, size;
};

struct object { /* the start of struct dl_phdr_info */
	uint64_t base;
	const char *name;
	const struct program_header *headers;
	uint16_t header_count;
};

enum { PT_LOAD = 1, PT_DYNAMIC = 2 };
enum { DT_HASH = 4, DT_STRTAB = 5, DT_SYMTAB = 6, DT_GNU_HASH = 0x6ffffef5 };
enum { STT_FUNC = 2, STT_GNU_IFUNC = 10 };

extern int dl_iterate_phdr(int (*visit)(struct object *, size_t, void *), void *data)
	__attribute__((weak));

/* The tables of an object in which its symbols are found. */
struct symbols {
	uint64_t base;
	const struct symbol *table;
	const char *strings;
	const uint32_t *gnu_hash, *hash;
};

static int same_text(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static struct symbols symbols_of(const struct object *object)
{
	struct symbols symbols = { object->base, NULL, NULL, NULL, NULL };
	const struct dynamic *entry = NULL;

	for (int i = 0; i < object->header_count; i++)
		if (object->headers[i].type == PT_DYNAMIC)
			entry = (const void *)(object->base + object->headers[i].address);

	for (; entry && entry->tag; entry++) {
		/* glibc has added the base, musl has not. */
		uint64_t at =
			entry->value < object->base ? entry->value + object->base : entry->value;

		if (entry->tag == DT_SYMTAB)
			symbols.table = (const void *)at;
		else if (entry->tag == DT_STRTAB)
			symbols.strings = (const void *)at;
		else if (entry->tag == DT_GNU_HASH)
			symbols.gnu_hash = (const void *)at;
		else if (entry->tag == DT_HASH)
			symbols.hash = (const void *)at;
	}
	return symbols;
}

/* Returns the address of a function if symbol number i is it, or NULL. */
static void *function_at(const struct symbols *symbols, uint32_t i, const char *name)
{
	const struct symbol *symbol = &symbols->table[i];
	void *address = (void *)(symbols->base + symbol->value);
	int type = symbol->info & 15;

	if (!symbol->section || (type != STT_FUNC && type != STT_GNU_IFUNC) ||
	    !same_text(symbols->strings + symbol->name, name))
		return NULL;
	return type == STT_FUNC ? address : ((void *(*)(uint64_t))address)(0);
}

/* https://flapenguin.me/elf-dt-gnu-hash */
static void *find_by_gnu_hash(const struct symbols *symbols, const char *name)
{
	const uint32_t *header = symbols->gnu_hash;
	uint32_t bucket_count = header[0], first = header[1], bloom_size = header[2],
		 bloom_shift = header[3];
	const uint64_t *bloom = (const uint64_t *)&header[4];
	const uint32_t *buckets = (const uint32_t *)&bloom[bloom_size],
		       *chain = &buckets[bucket_count];
	uint32_t hash = 5381;

	if (!bucket_count || !bloom_size)
		return NULL;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (uint8_t)*c;
	uint64_t word = bloom[hash / 64 % bloom_size];
	if (!(word >> hash % 64 & word >> (hash >> bloom_shift) % 64 & 1))
		return NULL;

	for (uint32_t i = buckets[hash % bucket_count]; i >= first && i; i++) {
		void *found =
			(chain[i - first] | 1) == (hash | 1) ? function_at(symbols, i, name) : NULL;

		if (found || chain[i - first] & 1)
			return found;
	}
	return NULL;
}

/* The hash of System V ABI, "Hash Table": the whole of the table is read, as only old objects lack
 * the other one. */
static void *find_by_hash(const struct symbols *symbols, const char *name)
{
	for (uint32_t i = 1; i < symbols->hash[1]; i++) {
		void *found = function_at(symbols, i, name);

		if (found)
			return found;
	}
	return NULL;
}

static void *find_function(const struct symbols *symbols, const char *name)
{
	if (!symbols->table || !symbols->strings)
		return NULL;
	if (symbols->gnu_hash)
		return find_by_gnu_hash(symbols, name);
	return symbols->hash ? find_by_hash(symbols, name) : NULL;
}

static int has_address(const struct object *object, uint64_t address)
{
	for (int i = 0; i < object->header_count; i++) {
		const struct program_header *header = &object->headers[i];

		if (header->type == PT_LOAD &&
		    address - object->base - header->address < header->memory_size)
			return 1;
	}
	return 0;
}
