package stack

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/process"
)

// mapProgram maps a copy of a program executable into this process, and deletes the copy.
func mapProgram(t *testing.T, program []byte) (address []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.so")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	const access = unix.PROT_READ | unix.PROT_EXEC
	address, err = unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), access, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return address
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestNamerFiles(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	newTable := func(t *testing.T) (*Table, func()) {
		p, err := process.Open(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		table := NewTable(p, NewNamer(p, false), &Memory{})
		table.unnamed.limiter.Burst = time.Hour
		t.Cleanup(func() {
			if err := table.Close(); err != nil {
				t.Error(err)
			}
			p.Close()
		})
		return table, func() {
			maps, err := p.Maps()
			if err != nil {
				t.Fatal(err)
			}
			table.SetMappings(maps)
		}
	}
	const slack = 30 // of the test, and what this process has mapped itself

	t.Run("of libraries that are gone are closed", func(t *testing.T) {
		table, update := newTable(t)
		before := openFiles(t)
		for i := range uint64(300) {
			library := mapProgram(t, program)
			update()
			table.Add(Raw{ID: i + 1, words: []word{word(i)}})
			if err := unix.Munmap(library); err != nil {
				t.Fatal(err)
			}
			update()
		}
		if after := openFiles(t); after > before+maxGenerations+slack {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})

	t.Run("of libraries that are all mapped are bounded", func(t *testing.T) {
		table, update := newTable(t)
		before := openFiles(t)
		for range 3 * maxOpenFiles {
			library := mapProgram(t, program)
			t.Cleanup(func() { _ = unix.Munmap(library) })
		}
		update()
		if after := openFiles(t); after > before+maxOpenFiles+slack {
			t.Errorf("%d descriptors, %d before", after, before)
		}

		named := 0
		for _, m := range table.Namer.maps {
			if m.IsFile() && table.Namer.mappedFile(m).symbols != nil {
				named++
			}
		}
		if after := openFiles(t); named < 3*maxOpenFiles || after > before+maxOpenFiles+slack {
			t.Errorf("%d files have symbols; %d descriptors, %d before", named, after, before)
		}
	})
}
