package unwind

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// newCache makes a cache that takes small tables, too.
func newCache(t testing.TB) *Cache {
	t.Helper()
	cache := OpenCache(filepath.Join(t.TempDir(), "cache"))
	if cache == nil {
		t.Fatal("no cache")
	}
	t.Cleanup(cache.Close)
	cache.minWords = 0
	return cache
}

// mustBuild builds by the cache, and compares with the table without one.
func mustBuild(t testing.TB, c *Cache, data []byte, path string) (cached bool) {
	t.Helper()
	size := int64(len(data))
	want, wantErr := Build(bytes.NewReader(data), size, path)
	got, cached, err := c.Build(bytes.NewReader(data), size, path)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, without cache %v", err, wantErr)
	}
	if err == nil && (got.Base != want.Base || got.Rows != want.Rows || got.Rules != want.Rules ||
		!slices.Equal(got.Words, want.Words)) {
		t.Fatalf("%d rows from %#x, without cache %d from %#x", got.Rows, got.Base, want.Rows,
			want.Base)
	}
	return cached
}

func mustBeCached(t testing.TB, c *Cache, data []byte, want bool) {
	t.Helper()
	if got := mustBuild(t, c, data, "test"); got != want {
		t.Errorf("the table came from the cache: %v, want %v", got, want)
	}
}

func TestCache(t *testing.T) {
	c := newCache(t)
	torch, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.*.*.*") // large, if it is there
	for _, path := range append(torch,
		"/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/bin/python3",
		compile(t, ".c", programC, "-O2", "-fPIC"),
	) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data := contents(t, path)
			mustBeCached(t, c, data, false)
			mustBeCached(t, c, data, true)
			table, _, err := c.Build(bytes.NewReader(data), int64(len(data)), "test")
			tracertest.NoError(t, err)
			checkTable(t, table)
		})
	}

	t.Run("none", func(t *testing.T) {
		var none *Cache
		mustBeCached(t, none, contents(t, "/bin/true"), false)
		none.Close()
		if c := OpenCache(""); c != nil {
			t.Error("there is a cache without a folder")
		}
	})

	t.Run("small", func(t *testing.T) {
		c := newCache(t)
		c.minWords = minCachedWords
		data := contents(t, compile(t, ".c", programC, "-O2", "-fPIC"))
		mustBeCached(t, c, data, false)
		mustBeCached(t, c, data, false)
	})

	t.Run("another program", func(t *testing.T) {
		c, data := newCache(t), contents(t, "/bin/true")
		mustBeCached(t, c, data, false)
		c.program = append(c.program, 1)
		mustBeCached(t, c, data, false)
	})

	t.Run("loader", func(t *testing.T) {
		c, data := newCache(t), contents(t, "/lib64/ld-linux-x86-64.so.2")
		for i, path := range []string{"/lib/ld-linux.so", "test", "/lib/ld-linux.so", "test"} {
			if cached := mustBuild(t, c, data, path); cached != (i >= 2) {
				t.Errorf("%s: from the cache: %v", path, cached)
			}
		}
	})
}

// A file that claims to be another one gets its own table, and does not change the other's.
func TestCacheForgery(t *testing.T) {
	flags := []string{"-O2", "-fPIC", "-Wl,--build-id=0x00112233445566778899"}
	genuine := contents(t, compile(t, ".c", programC, flags...))
	frames := section(t, genuine, ".eh_frame")

	forged := bytes.Clone(genuine)
	at := bytes.Index(forged[frames.Offset:], []byte{0x0e, 0x10}) // DW_CFA_def_cfa_offset 16
	if at < 0 || frames.Offset < headBytes {
		t.Fatalf("no rule to change at %d of %d bytes", frames.Offset, frames.Size)
	}
	forged[int(frames.Offset)+at+1] = 0x40
	if a, b := buildBytes(t, genuine), buildBytes(t, forged); slices.Equal(a.Words, b.Words) {
		t.Fatal("both files have the same table")
	}

	t.Run("replaced", func(t *testing.T) {
		c := newCache(t)
		mustBeCached(t, c, genuine, false)
		mustBeCached(t, c, forged, false)
		mustBeCached(t, c, forged, true)
		mustBeCached(t, c, genuine, false)
		mustBeCached(t, c, genuine, true)
	})

	// The owner of a file can write it while it is read.
	t.Run("changes while it is read", func(t *testing.T) {
		size := int64(len(genuine))
		for change := range 64 {
			c, reads := newCache(t), 0
			_, _, _ = c.Build(readerFunc(func(p []byte, offset int64) (int, error) {
				if reads++; reads > change {
					return bytes.NewReader(forged).ReadAt(p, offset)
				}
				return bytes.NewReader(genuine).ReadAt(p, offset)
			}), size, "test")
			mustBuild(t, c, genuine, "test")
			mustBuild(t, c, forged, "test")
		}
	})

	t.Run("cannot be read once", func(t *testing.T) {
		size, failed := int64(len(genuine)), 0
		for bad := 1; bad < 64; bad++ {
			c, reads := newCache(t), 0
			_, _, err := c.Build(readerFunc(func(p []byte, offset int64) (int, error) {
				if reads++; reads == bad {
					return 0, errors.New("it does not answer")
				}
				return bytes.NewReader(genuine).ReadAt(p, offset)
			}), size, "test")
			if mustBuild(t, c, genuine, "test") && reads >= bad && bad > 1 {
				t.Errorf("a table without read %d was kept", bad)
			}
			if err != nil {
				failed++
			}
		}
		if failed == 0 {
			t.Error("no read failed")
		}
	})
}

type readerFunc func(p []byte, offset int64) (int, error)

func (f readerFunc) ReadAt(p []byte, offset int64) (int, error) { return f(p, offset) }

// Whatever byte of a file changes, its table is the one that is made without a cache.
func TestCacheAnyByte(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, data := range map[string][]byte{
		"made":   contents(t, compile(t, ".c", programC, "-O2", "-fPIC", "-g")),
		"loader": contents(t, "/lib64/ld-linux-x86-64.so.2"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t)
			mustBuild(t, c, data, "test")
			fromCache := 0
			for range 400 {
				changed := bytes.Clone(data)
				changed[random.IntN(len(data))] ^= 1 << random.IntN(8)
				if mustBuild(t, c, changed, "test") {
					fromCache++
				}
				mustBuild(t, c, data, "test")
			}
			if fromCache == 0 {
				t.Error("no change was beside the unwind information")
			}
		})
	}
}

// memory is an entry of a table and its file.
func memory(t testing.TB, data []byte) (entry []byte, table *Table) {
	t.Helper()
	size := int64(len(data))
	in := newFileReader(bytes.NewReader(data), size)
	table = tracertest.Must(buildFrom(in, size, "test"))(t)
	return append(encode(table, in), wordBytes(table.Words)...), table
}

// An entry that was forged with its checksum leads to a valid table or to none. Its pieces still have
// to be the file's.
func TestDecodeRefuses(t *testing.T) {
	data := contents(t, compile(t, ".c", programC, "-O2", "-fPIC"))
	size := int64(len(data))
	entry, table := memory(t, data)
	if got := decode(entry, bytes.NewReader(data), size); got == nil {
		t.Fatal("the entry is refused")
	} else if !slices.Equal(got.Words, table.Words) {
		t.Fatal("the entry has another table")
	}

	for n := range len(entry) {
		if decode(entry[:n], bytes.NewReader(data), size) != nil {
			t.Errorf("an entry of %d of %d bytes has a table", n, len(entry))
		}
	}

	for i := range entry {
		for _, bit := range []byte{1, 0x80} {
			changed := bytes.Clone(entry)
			changed[i] ^= bit
			got := decode(changed, bytes.NewReader(data), size)
			if got == nil {
				continue
			}
			checkTableIsSafe(t, got)
			if i < len(entry)-8*len(table.Words) {
				t.Errorf("byte %d, before the table, may be anything", i)
			}
		}
	}

	forged := bytes.Clone(data)
	forged[section(t, data, ".eh_frame").Offset+20] ^= 1
	if decode(entry, bytes.NewReader(forged), size) != nil {
		t.Error("the entry serves for another file")
	}
}

// checkTableIsSafe looks up addresses within and around a table.
func checkTableIsSafe(t testing.TB, table *Table) {
	t.Helper()
	head := table.header()
	end := table.Base + uint64(head.Pages)<<10
	step := max(1, (end-table.Base)/5000)
	for vaddr := table.Base - 10*step; vaddr < end+10*step; vaddr += step {
		table.Rule(vaddr)
	}
	for page := range head.Pages {
		for _, offset := range []uint64{0, 1, pageBytes - 1} {
			table.Rule(table.Base + uint64(page)*pageBytes + offset)
		}
	}
}

// FuzzDecode: whatever an entry and a file hold, no panic, memory bounded by theirs, and look-ups stay
// within the table.
func FuzzDecode(f *testing.F) {
	data := contents(f, compile(f, ".s", function("one", "", "nop\n.skip 3000, 0x90"), "-s"))
	entry, _ := memory(f, data)
	f.Add(entry, data)
	f.Add(entry[:len(entry)/2], data)
	f.Add(entry, data[:len(data)/2])
	f.Add(bytes.Repeat([]byte{0xff}, 100), data)

	f.Fuzz(func(t *testing.T, entry, data []byte) {
		// As if the digest were right: the fuzzer cannot make one.
		changed := append(make([]byte, 0, len(entry)+8), entry...)
		if len(changed) >= entryHeaderBytes {
			pieces := min(int(changed[48])*pieceBytes, len(changed)-entryHeaderBytes)
			pieces -= pieces % pieceBytes
			in := changed[entryHeaderBytes : entryHeaderBytes+pieces]
			copy(changed, digest(in, bytes.NewReader(data), int64(len(data))))
		}

		if table := decode(changed, bytes.NewReader(data), int64(len(data))); table != nil {
			checkTableIsSafe(t, table)
		}
	})
}

// A later trace hands the same table to the kernel.
func TestTablesCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	raw := contents(t, "/usr/bin/python3")
	want := buildBytes(t, raw)
	for _, cached := range []bool{false, true} {
		maps := newKernelMaps(t, 4)
		tables := NewTables(maps.tables, maps.innerTables, OpenCache(path))
		var read atomic.Int64
		index, err := tables.Add(Identity{Inode: 1, Size: int64(len(raw))}, "test", false,
			func() (Source, error) {
				return struct {
					io.ReaderAt
					io.Closer
				}{readerFunc(func(p []byte, offset int64) (int, error) {
					read.Add(1)
					return bytes.NewReader(raw).ReadAt(p, offset)
				}), io.NopCloser(nil)}, nil
			})
		tracertest.NoError(t, err)
		tables.Wait(t.Context(), time.Minute)

		if got := readTable(t, maps.tables, index); !slices.Equal(got, want.Words) {
			t.Errorf("cached %v: the kernel holds other words", cached)
		}
		if parsed := tables.parsed > 0; parsed == cached {
			t.Errorf("cached %v: the file was parsed: %v", cached, parsed)
		}
		tracertest.NoError(t, tables.Close())
		if entries := tracertest.Must(os.ReadDir(path))(t); len(entries) != 1 {
			t.Errorf("%d entries", len(entries))
		}
	}
}
