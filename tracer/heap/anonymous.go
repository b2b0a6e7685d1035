package heap

import (
	"strings"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Anonymous is private anonymous memory in which the marks of allocators and of the thread library
// are searched.
type Anonymous struct {
	// Areas are the ranges without a gap, whatever their protection. Writable are the parts of them
	// that can be read and written.
	Areas, Writable mem.Spans
}

// AnonymousOf returns the anonymous memory of a process.
func AnonymousOf(maps []process.Mapping) (a Anonymous) {
	for _, m := range maps {
		if !IsUnnamed(m) || (m.Start|m.End)%process.PageSize != 0 {
			continue
		}
		a.Areas = extend(a.Areas, m)
		if m.Read && m.Write {
			a.Writable = extend(a.Writable, m)
		}
	}
	return a
}

// extend appends a mapping to spans. It leaves out a mapping that is not in order.
func extend(spans mem.Spans, m process.Mapping) mem.Spans {
	n := len(spans)
	switch {
	case m.Start >= m.End, n > 0 && m.Start < spans[n-1].End:
	case n > 0 && m.Start == spans[n-1].End:
		spans[n-1].End = m.End
	default:
		spans = append(spans, mem.Span{Start: m.Start, End: m.End})
	}
	return spans
}

// IsUnnamed reports whether a mapping is private anonymous memory without a name, or with one of
// glibc's or CPython's: only its contents show its use.
func IsUnnamed(m process.Mapping) bool {
	if m.IsFile() || m.Shared {
		return false
	}
	name := NameOf(m)
	return m.Path == "" || strings.HasPrefix(name, "glibc: ") || strings.HasPrefix(name, "cpython:")
}

// NameOf returns the name that the program gave to anonymous memory by prctl(PR_SET_VMA_ANON_NAME);
// empty: it gave none. The names of glibc begin with a space, which NameOf trims.
func NameOf(m process.Mapping) string {
	name, ok := strings.CutPrefix(m.Path, "[anon:")
	if !ok {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(name, "]"))
}
