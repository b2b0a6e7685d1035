package allocators

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// A line of the table is whole.
func TestAll(t *testing.T) {
	names := make(map[string]bool)
	for _, a := range All {
		isChecked := a.Limit != growth.HeapUnchecked
		if a.Name == "" || names[a.Name] || len(a.Files) == 0 || isChecked != (a.Find != nil) ||
			len(a.Functions) == 0 && (isChecked || !a.InLibc) {
			t.Errorf("%+v", a)
		}
		names[a.Name] = true
	}
}

func TestOfFiles(t *testing.T) {
	for _, c := range []struct {
		paths, want string
	}{
		{"/usr/bin/python3 /lib/x86_64-linux-gnu/libc.so.6", "glibc"},
		{"/lib/x86_64-linux-gnu/libc-2.31.so", "glibc"},
		{"/lib/libc.so.6 /usr/lib/libjemalloc.so.2", "jemalloc"},
		{"/lib/libc.so.6 /usr/lib/libtcmalloc_minimal.so.4", "tcmalloc"},
		{"/lib/libc.so.6 /usr/lib/libmimalloc.so.2.0", "mimalloc"},
		{"/lib/ld-musl-x86_64.so.1", "musl"},
		{"/usr/bin/static [heap]", ""},
	} {
		var maps []process.Mapping
		for _, path := range strings.Fields(c.paths) {
			maps = append(maps, process.Mapping{Path: path})
		}
		if got := OfFiles(maps); got != c.want {
			t.Errorf("of %s: %q, want %q", c.paths, got, c.want)
		}
	}
}
