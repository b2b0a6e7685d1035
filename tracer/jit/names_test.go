package jit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func newNames() *Names { return &Names{dumps: make(map[process.FileID]*dump)} }

// TestParseName takes the names that each runtime writes.
func TestParseName(t *testing.T) {
	for name, want := range map[string]Function{
		"JS:^keepReply /srv/app.js:2:19":                      {Name: "keepReply", File: "/srv/app.js", StartLine: 2},
		"JS:~ node:path:1208:10":                              {Name: "<anonymous:1208>", File: "node:path", StartLine: 1208},
		"JS:*get size file:///srv/a b.mjs:7:3":                {Name: "get size", File: "/srv/a b.mjs", StartLine: 7},
		"Builtin:GlobalEval":                                  {Name: "Builtin:GlobalEval"},
		"py::load:/srv/train.py":                              {Name: "load", File: "/srv/train.py", IsTrampoline: true},
		"void Leak.openStream()":                              {Name: "Leak.openStream"},
		"java.lang.Object a.B$C.get(int, java.lang.String[])": {Name: "a.B$C.get"},
		"Lcom/example/Cache;::put":                            {Name: "com.example.Cache.put"},
		"TRACE_3::leak.lua:12":                                {Name: "TRACE_3::leak.lua:12"},
		"julia_grow_123":                                      {Name: "julia_grow_123"},
	} {
		if got := parseName(name); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
}

// TestFind finds functions by the time at which the stack was reported.
func TestFind(t *testing.T) {
	n := newNames()
	add := func(start, size uint64, name string, check, since int) {
		n.add(function{start: start, end: start + size, name: name, check: check, since: since})
	}
	add(0x1000, 0x100, "first", 1, 0)
	add(0x1000, 0x100, "first", 3, 0) // listed once more
	add(0x1080, 0x100, "moved", 5, 5)
	add(0x3000, 0x10, "late", 9, 0) // in a file that came late
	add(0x4000, 0x10, "new", 9, 9)

	for _, c := range []struct {
		address uint64
		check   int
		want    string
	}{
		{0x1000, 1, "first"},
		{0x10ff, 3, "first"},
		{0x10ff, 4, ""}, // until the next check, one or the other
		{0x10ff, 5, "moved"},
		{0x1000, 9, "first"},
		{0x1180, 9, ""},
		{0x117f, 4, "moved"},
		{0x117f, 3, ""}, // it was not there yet
		{0xfff, 9, ""},
		{0x3000, 2, "late"},
		{0x4000, 7, ""},
		{0x4000, 8, "new"},
	} {
		if got, ok := n.Find(c.address, c.check); got.Name != c.want || ok != (c.want != "") {
			t.Errorf("%#x at check %d: %q, want %q", c.address, c.check, got.Name, c.want)
		}
	}
}

// TestFindBounded: a process lists more functions at one address than are compared.
func TestFindBounded(t *testing.T) {
	n := newNames()
	for i := range uint64(2 * maxCandidates) {
		n.add(function{start: 0x1000 + i, end: 0x9000, name: "f", check: 1})
	}
	if got, ok := n.Find(0x8000, 1); ok {
		t.Errorf("found %+v", got)
	}
}

// open writes a file and opens it.
func open(t *testing.T, path string, content []byte) *hostile.File {
	t.Helper()
	tracertest.NoError(t, os.WriteFile(path, content, 0o600))
	file := tracertest.Must(hostile.Open(nil, path, 0, 0))(t)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// TestReadPerfMap reads a file that grows, is written again, and has lines of all kinds.
func TestReadPerfMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf-1.map")
	n := newNames()
	read := func(text string) {
		n.checks++
		n.readPerfMap(open(t, path, []byte(text)))
	}
	mustFind := func(address uint64, want string) {
		t.Helper()
		if got, _ := n.Find(address, n.checks); got.Name != want {
			t.Errorf("%#x is %q, want %q", address, got.Name, want)
		}
	}

	read("1000 10 one\nnonsense\n\n0x2000 0x10 two\x1b[31m\n3000 10 thr")
	mustFind(0x1000, "one")
	mustFind(0x2000, "two?[31m")
	mustFind(0x3000, "") // its line is not whole yet
	read("1000 10 one\nnonsense\n\n0x2000 0x10 two\x1b[31m\n3000 10 three\nffffffffffffff00 1000 wraps\n")
	mustFind(0x3000, "three")
	if len(n.functions) != 3 {
		t.Errorf("%d functions, want 3", len(n.functions))
	}
	read("1000 10 another\n4000 10 " + strings.Repeat("x", 5000) + "\n")
	mustFind(0x1000, "another")
	if got, _ := n.Find(0x4000, n.checks); len(got.Name) > maxNameBytes+len("…") {
		t.Errorf("a name of %d bytes", len(got.Name))
	}

	for range maxFunctions / 1000 * 2 { // more than a process may list
		n.listing = listing{}
		var many bytes.Buffer
		for i := range 1000 {
			fmt.Fprintf(&many, "%x 1 f\n", len(n.functions)*2+i)
		}
		read(many.String())
	}
	if len(n.functions) > maxFunctions {
		t.Errorf("%d functions", len(n.functions))
	}
}

// dumpOf is a jitdump of records.
func dumpOf(records ...[]byte) []byte {
	header := make([]byte, dumpHeaderBytes)
	binary.LittleEndian.PutUint32(header, dumpMagic)
	binary.LittleEndian.PutUint32(header[8:], dumpHeaderBytes)
	return append(header, bytes.Join(records, nil)...)
}

func record(id uint32, rest []byte, words ...uint64) []byte {
	var body []byte
	for _, w := range words {
		body = binary.LittleEndian.AppendUint64(body, w)
	}
	body = append(body, rest...)
	head := make([]byte, recordBytes)
	binary.LittleEndian.PutUint32(head, id)
	binary.LittleEndian.PutUint32(head[4:], uint32(len(body)+recordBytes))
	return append(head, body...)
}

// TestReadDump reads a jitdump whose code is larger than a piece, with a move and a source.
func TestReadDump(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jit-1.dump")
	const pid = 7<<32 | 7
	large := append([]byte("large\x00"), make([]byte, 3*chunkBytes)...)
	whole := dumpOf(
		record(recordLoad, large, pid, 0x1000, 0x1000, 0x800, 1),
		record(recordDebug, []byte("/srv/a.jl\x00"), 0x2000, 1, 0x2040, 12),
		record(recordLoad, []byte("grow\x00code"), pid, 0x2000, 0x2000, 0x10, 2),
		record(recordMove, nil, pid, 0x3000, 0x2000, 0x3000, 0x10, 2),
		record(99, nil, 1),
		record(recordLoad, []byte("last\x00"), pid, 0x5000, 0x5000, 0x10, 3),
	)

	for cut := range 80 { // the runtime is writing the last records
		n, d := newNames(), newDump()
		n.checks = 1
		n.readDump(d, open(t, path, whole[:len(whole)-cut]))
		n.readDump(d, open(t, path, whole))
		for address, want := range map[uint64]Function{
			0x17ff: {Name: "large"}, 0x2000: {Name: "grow", File: "/srv/a.jl", StartLine: 12},
			0x300f: {Name: "grow", File: "/srv/a.jl", StartLine: 12}, 0x5000: {Name: "last"},
		} {
			if got, _ := n.Find(address, 1); got != want {
				t.Fatalf("cut by %d: %#x is %+v, want %+v", cut, address, got, want)
			}
		}
	}
}

// FuzzDump: whatever a file has, reading it ends, and keeps no more than it may.
func FuzzDump(f *testing.F) {
	f.Add(dumpOf(record(recordLoad, []byte("f\x00"), 1, 2, 3, 4, 5), record(recordMove, nil, 1, 2, 3, 4, 5, 6)))
	f.Add(dumpOf(record(recordDebug, []byte("/a.c\x00"), 1, 1, 2, 3), []byte{0, 0, 0, 0, 1}))
	f.Fuzz(func(t *testing.T, content []byte) {
		n, d := newNames(), newDump()
		n.readDump(d, open(t, filepath.Join(t.TempDir(), "jit-1.dump"), content))
		if d.offset > int64(len(content)) && !d.failed && d.offset > dumpHeaderBytes {
			t.Errorf("read to %d of %d bytes", d.offset, len(content))
		}
		n.Find(3, 0)
	})
}
