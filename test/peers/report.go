package main

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/test/harness"
)

// An entry is one line of a tool's report: a stack, leaf first, its share of all reported memory,
// and of allocscope the component.
type entry struct {
	frames    []string
	share     float64
	component string
}

// A report has the entries that a tool reports, the largest first.
type report struct {
	entries []entry
	// rates: the tool is allocscope, which also reports the following. rate is how fast the entries
	// with the leak grow, in bytes a minute, with its interval.
	rates          bool
	rate, low, top float64
	verdict        string
	// cache: an entry with the workload's cache is among those that accumulate.
	cache bool
}

// A place is in a workload's source, as tools write it. function is empty for Python.
type place struct{ line, function string }

func (p place) is(frame string) bool {
	isFunction := p.function != "" && strings.Contains(frame, p.function)
	return isFunction || strings.Contains(frame, p.line+")")
}

func (p place) in(frames []string) bool { return slices.ContainsFunc(frames, p.is) }

// placesOf returns the lines of a workload that are marked as the leak and as the cache.
func placesOf(w workload, folder string) (leak, cache place, err error) {
	path := filepath.Join(folder, w.source)
	leak, cache = place{function: w.function}, place{function: w.cache}
	if leak.line, err = harness.Line(path, isLeak.MatchString); err == nil {
		cache.line, err = harness.Line(path, isCache.MatchString)
	}
	return leak, cache, err
}

// isLeak and isCache match a comment at the end of a line of Python or C.
var (
	isLeak  = regexp.MustCompile(`\bLEAK( \*/)?$`)
	isCache = regexp.MustCompile(`\bCACHE( \*/)?$`)
)

// named returns the position of the first entry with the leak, from 1, and the share of all such
// entries; 0 if there is none.
func (r report) named(leak place) (position int, share float64) {
	for i, e := range r.entries {
		if leak.in(e.frames) {
			if position == 0 {
				position = i + 1
			}
			share += e.share
		}
	}
	return position, share
}

var (
	// nameless is a frame that is an address, or unknown.
	nameless = regexp.MustCompile(`^(0x[0-9a-f]+|<.*|\[.*|)$`)
	// location is the part of a frame that is not the function's name.
	location = regexp.MustCompile(
		`(\+0x[0-9a-f]+)?( \[.*\]| \(<unknown>:0\)|<[0-9a-f]+>)$|/[^ )]*/`)
)

// shown returns the most useful frames of an entry: the leak's, or else the first two that have
// names.
func (e entry) shown(leak place) string {
	frames := e.frames
	if at := slices.IndexFunc(frames, leak.is); at >= 0 {
		frames = frames[at : at+1]
	}

	var names []string
	for _, frame := range frames {
		name := location.ReplaceAllString(strings.TrimSpace(frame), "")
		if !nameless.MatchString(name) && len(names) < 2 {
			names = append(names, shortened(name))
		}
	}

	text := cmp.Or(strings.Join(names, " < "), "no name")
	if e.component != "" {
		text += " (" + e.component + ")"
	}
	return text
}

// shortened cuts a name so that it fits into a cell of the table.
func shortened(name string) string {
	const maxLetters = 48
	if runes := []rune(name); len(runes) > maxLetters {
		return string(runes[:maxLetters]) + "…"
	}
	return name
}
