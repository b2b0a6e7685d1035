package bpf

// Limits that both sides share (types.h).
const (
	// MaxWords is the size of a stack in words (MAX_WORDS).
	MaxWords = len(Stack{}.Words)
	// MaxMappings bounds the executable mappings of a process (MAX_MAPPINGS).
	MaxMappings = 4096
	// MaxTables bounds the files with unwind tables (MAX_TABLES).
	MaxTables = 16384
	// PageBits is the number of address bits within a page of an unwind table's index (PAGE_BITS).
	PageBits = 10
)
