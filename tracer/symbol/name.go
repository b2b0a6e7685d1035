package symbol

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

// name returns the best name, mangled, among symbol i, which find returned, and
// its aliases: the symbols of the same address, size and visibility. It is ""
// if none of them has a name.
func (t *table) name(i int) (string, error) {
	best := ""
	want := t.symbols[i]
	for n := 0; n < maxAliases && i >= 0; n, i = n+1, i-1 {
		s := t.symbols[i]
		if s.value != want.value || s.extent != want.extent {
			break
		}
		name, err := t.string(s.name)
		if err != nil {
			return best, err
		}
		if best == "" || name != "" && compareAliases(name, best) < 0 {
			best = name
		}
	}
	return best, nil
}

// string reads the name at an offset of the string table, without its version
// (malloc@@GLIBC_2.2.5) and cut to maxName bytes.
func (t *table) string(offset uint32) (string, error) {
	if uint64(offset) >= t.names.size {
		return "", fmt.Errorf("read symbol name: offset %d of %d", offset, t.names.size)
	}
	rest := span{t.names.off + uint64(offset), min(t.names.size-uint64(offset), maxName)}
	buf, err := t.image.bytes(rest, maxName)
	if err != nil {
		return "", fmt.Errorf("read symbol name: %w", err)
	}
	if end := bytes.IndexByte(buf, 0); end >= 0 {
		buf = buf[:end]
	}
	if at := bytes.IndexByte(buf, '@'); at > 0 {
		buf = buf[:at]
	}
	return string(buf), nil
}

// compareAliases orders the names of one function, best first: malloc before
// cmalloc before __libc_malloc.
func compareAliases(a, b string) int {
	return cmp.Or(
		cmp.Compare(underscored(a), underscored(b)),
		cmp.Compare(len(a), len(b)),
		strings.Compare(a, b),
	)
}

// underscored returns 1 if name starts with an underscore that is not part of
// the C++ or Rust mangling, otherwise 0.
func underscored(name string) int {
	if strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "_Z") && !strings.HasPrefix(name, "_R") {
		return 1
	}
	return 0
}

// Demangle gives the name of a C++ or Rust function as Name does: without parameters and template arguments, of printable
// characters, at most 4096 bytes long. Other names stay as they are.
func Demangle(name string) string { return printed(name) }

// printed returns name as people read it: demangled, of printable characters.
// It is empty only if name is.
func printed(name string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, demangled(name))
}

// demangled demangles a C++ or Rust name with pprof's default options: no
// parameters and no template arguments. Other names, and those that the
// demangler does not understand, are returned as they are.
//
// The demangler panics on some names, for example
// _ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc, hence the recover. maxName bounds
// its time, memory and depth on both sides: of 16 million names that a fuzzer
// made, none took 0.2 s.
func demangled(name string) (result string) {
	defer func() {
		if recover() != nil || result == "" {
			result = name
		}
	}()
	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams,
		demangle.MaxLength(12)) // 2^12 == maxName
}
