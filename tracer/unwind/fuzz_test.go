package unwind

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

// Whatever the file: no panic, memory bounded by its size, and every look-up stays within a consistent table.
func FuzzBuild(f *testing.F) {
	var source strings.Builder
	for _, c := range craftedX86 {
		source.WriteString(function(c.name, c.options, c.body))
	}
	seeds := [][]byte{
		contents(f, compile(f, ".s", source.String(), "-s", "-Wl,-soname,libcrypto.so.9")),
		contents(f, compile(f, ".c", program, "-O2", "-fPIC", "-s")),
		contents(f, compile(f, ".s", ".cfi_sections .eh_frame, .debug_frame\n"+function("both", "", "nop"))),
	}
	arm := bytes.Clone(seeds[0])
	arm[18] = 183 // e_machine
	noSections := bytes.Clone(seeds[0])
	clear(noSections[40:48])
	for _, seed := range append(seeds, arm, noSections) {
		f.Add(seed)
		for _, n := range []int{0, 16, 63, 64, 120, 400, len(seed) / 2, len(seed) - 64, len(seed) - 1} {
			f.Add(seed[:n])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		table, err := Build(bytes.NewReader(data), int64(len(data)), "fuzz")
		runtime.ReadMemStats(&after)
		// 40 MB: what headers may ask for before they are seen to be wrong.
		if allocated, limit := after.TotalAlloc-before.TotalAlloc, uint64(40<<20+64*len(data)); allocated > limit {
			t.Errorf("%d bytes allocated for a file of %d bytes, more than %d", allocated, len(data), limit)
		}
		if err == nil {
			checkTable(t, table)
		}
	})
}
