package symbol

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A miniLibrary is a stripped library with MiniDebugInfo, and its functions before, by nm.
type miniLibrary struct {
	path, packed string
	functions    []function
}

// newMini builds a library and moves its functions that are not exported to MiniDebugInfo, with the
// commands of GDB's manual, which rpm's find-debuginfo follows.
func newMini(t testing.TB, xz ...string) miniLibrary {
	t.Helper()
	path := compile(t, "gcc", sourceC, "-shared", "-fPIC")
	l := miniLibrary{path: path, functions: nmFunctions(t, path)}
	var local strings.Builder
	exported := nmFunctions(t, path, "-D")
	for _, f := range l.functions {
		isExported := slices.ContainsFunc(exported, func(e function) bool { return e.value == f.value })
		if !isExported {
			local.WriteString(f.name + "\n")
		}
	}

	names, mini := path+".names", path+".mini"
	write(t, names, []byte(local.String()))
	run(t, "", "objcopy", "--only-keep-debug", path, path+".debug")
	run(t, "", "objcopy", "-S", "--remove-section", ".gdb_index", "--remove-section", ".comment",
		"--keep-symbols="+names, path+".debug", mini)
	run(t, "", "xz", append(xz, mini)...)
	l.packed = mini + ".xz"
	run(t, "", "strip", path)
	run(t, "", "objcopy", "--add-section", ".gnu_debugdata="+l.packed, path)
	return l
}

// TestMiniDebug names the local functions of a library, which are in MiniDebugInfo alone.
func TestMiniDebug(t *testing.T) {
	for _, options := range [][]string{nil, {"-9e"}, {"--check=none"}, {"-0", "-T2"}} {
		l := newMini(t, options...)
		f := openSound(t, l.path, t.TempDir())
		newOracle(t, l.functions).checkAll(t, f)
		if len(f.functions.tables) != 2 || f.TableBytes() < int(f.mini.size) {
			t.Errorf("%d tables, %d bytes", len(f.functions.tables), f.TableBytes())
		}
	}
}

// TestMiniDebugNotNeeded: a debug file has all symbols.
func TestMiniDebugNotNeeded(t *testing.T) {
	l, root := newMini(t), t.TempDir()
	id := withoutDebug(t, l.path).BuildID()
	place := filepath.Join(root, debugDir, ".build-id", id[:2], id[2:]+".debug")
	write(t, place, read(t, l.path+".debug"))
	f := openSound(t, l.path, root)
	newOracle(t, l.functions).checkAll(t, f)
	if f.mini != nil {
		t.Error("MiniDebugInfo was unpacked")
	}
}

// TestMiniDebugRefused: damaged data, and data that ask for too much, cost their names alone.
func TestMiniDebugRefused(t *testing.T) {
	zeros := filepath.Join(t.TempDir(), "zeros")
	tracertest.NoError(t, os.WriteFile(zeros, make([]byte, maxUnpacked+1), 0o600))
	run(t, "", "xz", "-0", zeros)
	text := filepath.Join(t.TempDir(), "text")
	write(t, text, []byte("text, and some more of it"))
	run(t, "", "xz", "-k", text)

	for name, c := range map[string]struct {
		change func(packed []byte) []byte
		want   string
	}{
		"text":      {func([]byte) []byte { return read(t, text) }, "not one block"},
		"bomb":      {func([]byte) []byte { return read(t, zeros+".xz") }, "more than"},
		"no ELF":    {func([]byte) []byte { return read(t, text+".xz") }, "read ELF header"},
		"truncated": {func(p []byte) []byte { return p[:len(p)/2] }, "unexpected EOF"},
		"filters":   {func(p []byte) []byte { p[13] |= 1; return p }, "not one block"},
		"header":    {func(p []byte) []byte { p[12] = 255; return p[:200] }, "not one block"},
	} {
		l := newMini(t)
		packed := filepath.Join(t.TempDir(), "packed")
		write(t, packed, c.change(read(t, l.packed)))
		run(t, "", "objcopy", "--update-section", ".gnu_debugdata="+packed, l.path)

		f := open(t, l.path, l.path, t.TempDir())
		for _, fn := range l.functions {
			if got, ok := f.Name(fn.value); ok && fn.name == "inner" {
				t.Errorf("%s: %q", name, got)
			}
		}
		if err := f.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Err() = %v, want one with %q", name, err, c.want)
		}
	}

	t.Run("budget", func(t *testing.T) {
		d := NewDebugFiles()
		d.left = maxUnpacked - 1
		f := openWith(t, d, newMini(t).path, "", t.TempDir())
		f.load(&f.functions, isFunction)
		if err := f.Err(); f.mini != nil || err == nil || !strings.Contains(err.Error(), "for a trace") {
			t.Errorf("unpacked %v, Err() = %v", f.mini != nil, err)
		}
	})
}

// FuzzUnpackXZ: whatever is packed, unpacking ends, in bounds.
func FuzzUnpackXZ(f *testing.F) {
	f.Add(read(f, newMini(f).packed))
	f.Add(bytes.Repeat([]byte{1}, 64))
	f.Fuzz(func(t *testing.T, packed []byte) {
		if raw, err := unpackXZ(packed); err == nil && len(raw) > maxUnpacked {
			t.Errorf("%d bytes", len(raw))
		}
	})
}
