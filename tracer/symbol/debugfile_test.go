package symbol

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A splitProgram is a stripped program in a folder that serves as the root of a
// process, which sees it at /opt/bin/program.
type splitProgram struct {
	root, path, debug string
	byBuildID         string // where the debug file belongs by its build ID
	functions         []function
}

const seen = "/opt/bin/program"

// newSplit builds the program. With link, it names its debug file program.debug.
func newSplit(t *testing.T, link bool, flags ...string) splitProgram {
	t.Helper()
	path := compile(t, "gcc", sourceC, flags...)
	p := splitProgram{root: t.TempDir(), functions: nmFunctions(t, path)}
	id := withoutDebug(t, path).BuildID()
	p.debug = split(t, path)

	if link {
		run(t, "", "objcopy", "--add-gnu-debuglink="+p.debug, path)
	}

	p.path = filepath.Join(p.root, seen)
	write(t, p.path, read(t, path))
	if id != "" {
		p.byBuildID = debugDir + "/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
	}

	return p
}

// in returns the path in the root of the process.
func (p splitProgram) in(path string) string { return filepath.Join(p.root, path) }

// check opens the program and checks that the names of its static functions are
// known, or if refused is not "", that they are not, and that Err says so.
func (p splitProgram) check(t *testing.T, refused string) {
	t.Helper()
	f := open(t, p.path, seen, p.root)
	if refused == "" {
		newOracle(t, p.functions).checkAll(t, f)
		if err := f.Err(); err != nil {
			t.Errorf("Err() = %v", err)
		}

		return
	}

	for _, fn := range p.functions {
		if name, ok := f.Name(fn.value); ok {
			t.Fatalf("Name(%#x) = %q from a debug file to refuse", fn.value, name)
		}
	}

	if err := f.Err(); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("Err() = %v, want one with %q", err, refused)
	}
}

func TestDebugFile(t *testing.T) {
	t.Run("by build ID", func(t *testing.T) {
		p := newSplit(t, false)
		write(t, p.in(p.byBuildID), read(t, p.debug))
		p.check(t, "")
	})

	t.Run("by link", func(t *testing.T) {
		for _, dir := range []string{"/opt/bin", "/opt/bin/.debug", debugDir + "/opt/bin"} {
			for _, flags := range [][]string{nil, {"-Wl,--build-id=none"}} {
				p := newSplit(t, true, flags...)
				write(t, p.in(dir+"/program.debug"), read(t, p.debug))
				p.check(t, "")
			}
		}
	})

	// A stripped file whose link leads to itself is merely stripped.
	t.Run("itself", func(t *testing.T) {
		p := newSplit(t, false)
		other := filepath.Join(t.TempDir(), filepath.Base(seen))
		write(t, other, []byte("x"))
		run(t, "", "objcopy", "--add-gnu-debuglink="+other, p.path)
		f := open(t, p.path, seen, p.root)
		f.load(&f.functions, isFunction)

		if err := f.Err(); err != nil || f.debug != nil {
			t.Errorf("Err() = %v, debug file %v", err, f.debug)
		}
	})

	t.Run("link to another directory", func(t *testing.T) {
		p := newSplit(t, true)
		data := bytes.Replace(read(t, p.path), []byte("program.debug"), []byte("../x/gr.debug"), 1)
		write(t, p.path, data)
		write(t, p.in("/opt/x/gr.debug"), read(t, p.debug))
		p.check(t, `"../x/gr.debug" is not a file name`)
	})

	// A file with its own symbols needs no debug file.
	t.Run("not needed", func(t *testing.T) {
		path, root := compile(t, "gcc", sourceC), t.TempDir()
		id := withoutDebug(t, path).BuildID()
		write(t, filepath.Join(root, debugDir, ".build-id", id[:2], id[2:]+".debug"), read(t, path))

		f := openSound(t, path, root)
		f.load(&f.functions, isFunction)
		if f.debug != nil {
			t.Errorf("opened %s", f.debug.Name())
		}
	})

	// The host's debug files come first; libc's is installed.
	t.Run("host's", func(t *testing.T) {
		f := openSound(t, libc, t.TempDir())
		f.load(&f.functions, isFunction)
		id := f.BuildID()
		debug := debugDir + "/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
		if f.debug == nil {
			t.Fatalf("no debug file %s (apt-get install libc6-dbg)", debug)
		}

		newOracle(t, nmFunctions(t, debug)).checkAll(t, f)
	})

	// The links of a system image, absolute and relative, lead from its root.
	t.Run("behind symbolic links", func(t *testing.T) {
		for _, target := range []string{
			"/store/x", "../../../../../store/x", "../../../../../../../../../store/x",
		} {
			p := newSplit(t, false)
			write(t, p.in("/store/x"), read(t, p.debug))
			symlink(t, target, p.in(p.byBuildID))
			p.check(t, "")
		}
	})
}

func TestDebugFileRefused(t *testing.T) {
	for _, test := range refused {
		t.Run(test.name, func(t *testing.T) {
			p := newSplit(t, strings.HasPrefix(test.name, "linked"))
			test.place(t, p)
			p.check(t, test.want)
		})
	}
}

// TestDebugFileReads has a hundred libraries link to debug files that are large, and not theirs.
func TestDebugFileReads(t *testing.T) {
	const libraries, size = 100, 16 << 20
	for _, c := range []struct {
		name   string
		copies int // of the debug file, the same one under all names if 1
		most   int64
	}{
		{"one debug file is read once", 1, 2 * size},
		{"many debug files are read up to a limit", libraries, 6 * size},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newSplit(t, true, "-Wl,--build-id=none")
			for i := range libraries {
				debug := p.in(fmt.Sprintf("/opt/%d/program.debug", i))
				if i < c.copies {
					write(t, debug, read(t, p.debug))
					if err := os.Truncate(debug, size); err != nil { // another checksum
						t.Fatal(err)
					}
					continue
				}
				tracertest.NoError(t, os.MkdirAll(filepath.Dir(debug), 0o755))
				tracertest.NoError(t, os.Link(p.in("/opt/0/program.debug"), debug))
			}

			debug := NewDebugFiles()
			debug.left = 4 * size
			before := tracertest.BytesRead(t)
			for i := range libraries {
				f := openWith(t, debug, p.path, fmt.Sprintf("/opt/%d/program", i), p.root)
				if name, ok := f.Name(p.functions[0].value); ok {
					t.Fatalf("%s is named by a debug file to refuse", name)
				}
			}
			if got := tracertest.BytesRead(t) - before; got > c.most {
				t.Errorf("%d MiB were read, want %d at most", got>>20, c.most>>20)
			}
		})
	}
}

var refused = []struct {
	name, want string
	place      func(t *testing.T, p splitProgram)
}{
	{"another build ID", "is not", func(t *testing.T, p splitProgram) {
		write(t, p.in(p.byBuildID), read(t, newSplit(t, false, "-O2").debug))
	}},
	{"no build ID", `build ID "" is not`, func(t *testing.T, p splitProgram) {
		write(t, p.in(p.byBuildID), read(t, newSplit(t, false, "-Wl,--build-id=none").debug))
	}},
	{"linked, another build ID", "is not", func(t *testing.T, p splitProgram) {
		write(t, p.in("/opt/bin/program.debug"), read(t, newSplit(t, false, "-O2").debug))
	}},
	{"linked, changed", "checksum", func(t *testing.T, p splitProgram) {
		write(t, p.in("/opt/bin/program.debug"), append(read(t, p.debug), 0))
	}},
	{"stripped", "no .symtab", func(t *testing.T, p splitProgram) {
		write(t, p.in(p.byBuildID), read(t, p.path))
	}},
	{"text", "not an ELF file", func(t *testing.T, p splitProgram) {
		write(t, p.in(p.byBuildID), bytes.Repeat([]byte("x"), 100))
	}},
	{"FIFO", "not a regular file", func(t *testing.T, p splitProgram) {
		node(t, p.in(p.byBuildID), unix.S_IFIFO, 0)
	}},
	{"device", "not a regular file", func(t *testing.T, p splitProgram) {
		node(t, p.in(p.byBuildID), unix.S_IFCHR, unix.Mkdev(1, 5))
	}},
	{"directory", "not a regular file", func(t *testing.T, p splitProgram) {
		tracertest.NoError(t, os.MkdirAll(p.in(p.byBuildID), 0o755))
	}},
	{"loop", "too many levels of symbolic links", func(t *testing.T, p splitProgram) {
		symlink(t, p.byBuildID, p.in(p.byBuildID))
	}},
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	tracertest.NoError(t, os.Symlink(target, path))
}

func node(t *testing.T, path string, kind uint32, device uint64) {
	t.Helper()
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	tracertest.NoError(t, unix.Mknod(path, kind|0o644, int(device)))
}
