package symbol

import (
	"bytes"
	"runtime"
	"testing"
	"unicode/utf8"
)

// Whatever the file: no panic, memory bounded by its size, and a name is never
// empty, overlong or unprintable.
func FuzzOpen(f *testing.F) {
	path := assemble(f, labels("first", "_ZN5space5ThingC1Ev", "_ZN5space5ThingC2Ev")+".symver first,other@@V1\n")
	whole := read(f, path)
	code := read(f, compile(f, "g++", piecesC, "-O2"))
	f.Add(code)
	split(f, path)
	run(f, "", "objcopy", "--add-gnu-debuglink="+path+".debug", path)
	for _, seed := range [][]byte{whole, read(f, path), read(f, path+".debug")} {
		f.Add(seed)
		for _, n := range []int{0, 16, 63, 64, 120, 400, len(seed) / 2, len(seed) - 64, len(seed) - 1} {
			f.Add(seed[:n])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		exercise(t, data)
		runtime.ReadMemStats(&after)
		if allocated, limit := after.TotalAlloc-before.TotalAlloc, uint64(8<<20+64*len(data)); allocated > limit {
			t.Errorf("%d bytes allocated for a file of %d bytes, more than %d", allocated, len(data), limit)
		}
	})
}

// exercise calls everything on the file data.
func exercise(t *testing.T, data []byte) {
	file, err := newFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return
	}
	file.BuildID()
	link, _, _ := file.image.debugLink()
	debugPaths(file.BuildID(), link, "/usr/bin/program", "/root")
	addresses := []uint64{0, 1, 0x1000, 1 << 63, 1<<64 - 1}
	for _, offset := range []uint64{0, 0x40, 0x1000, uint64(len(data)), 1<<64 - 1} {
		if vaddr, ok := file.Address(offset); ok {
			addresses = append(addresses, vaddr)
		}
	}
	file.load()
	for _, s := range file.symbols.symbols[:min(len(file.symbols.symbols), 50)] {
		addresses = append(addresses, s.value, s.end(), s.end()+1)
	}
	for _, vaddr := range addresses {
		name, ok := file.Name(vaddr)
		if ok == (name == "") {
			t.Errorf("Name(%#x) = %q, %v", vaddr, name, ok)
		}
		if utf8.RuneCountInString(name) > maxName || !utf8.ValidString(name) {
			t.Errorf("Name(%#x) = %q", vaddr, name)
		}
	}
	for _, name := range []string{"first", "other", "nowhere"} {
		file.Export(name)
		file.ColdPieces(name)
	}
	for _, vaddr := range addresses {
		if p, ok := file.Piece(vaddr); ok && (vaddr < p.Start || vaddr >= p.End) {
			t.Errorf("%#x is in %+v", vaddr, p)
		}
		file.Bias(vaddr, vaddr)
	}
	_ = file.Err()
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
