package symbol

// Limits on the memory and work that a file can cause the tracer. Real files stay far below:
// libtorch_cpu.so 1.13 has 34,923 dynamic symbols and names of up to 537 bytes.
const (
	maxSegments    = 1024      // program headers; Linux refuses more than 64 KiB of them
	maxSections    = 0xff00    // SHN_LORESERVE: more need extended numbering, which linkers avoid
	maxSectionName = 1 << 20   // bytes of the section name table
	maxNotes       = 64        // note sections and segments that are read
	maxNote        = 1 << 16   // bytes of one of them
	maxProbeNotes  = 1 << 20   // bytes of all notes that are searched for static probes
	maxProbes      = 1024      // static probes of a provider
	maxProbeText   = 512       // bytes of the arguments of one
	maxBuildID     = 64        // bytes; GNU ld writes 20
	maxLink        = 4096      // bytes of .gnu_debuglink
	maxLinked      = 1 << 31   // bytes of all debug files of a session whose checksums are computed
	maxPacked      = 16 << 20  // bytes of .gnu_debugdata; 0.3 MB for libpython
	maxUnpacked    = 64 << 20  // bytes that are unpacked of it
	maxSymbols     = 8 << 20   // of a symbol table: 24 bytes each in the file, up to 16.2 in memory
	maxNames       = 256 << 20 // bytes of a string table that is searched
	maxName        = 4096      // bytes of a name, mangled and demangled
	maxChain       = 1 << 16   // symbols of one hash value that are compared
	maxRelocated   = 4         // sections of relocations that are read
	maxRelocations = 1 << 20   // entries of one of them, 24 bytes each
	maxImports     = 1 << 16   // pointers to symbols that are kept of a file
	maxImport      = 512       // bytes of a symbol's name that a pointer is kept for
	maxFrame       = 1 << 16   // bytes of the unwind information of one function
	maxAliases     = 64        // symbols at one address whose names are compared
	maxCache       = 4 << 20   // bytes of printed names that a File keeps
	maxConstants   = 16 << 20  // bytes of constants that are searched for texts
	maxProblems    = 8         // errors that a File keeps
)
