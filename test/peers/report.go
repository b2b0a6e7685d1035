package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An entry is one line of what a tool reports: whose memory it is, from the innermost frame on, and the part of all that it reports.
type entry struct {
	frames []string
	share  float64
}

// A report is what a tool says, largest first.
type report struct {
	entries []entry
	// What allocscope says beyond that, in bytes a minute: how fast the entries with the planted line grow, and the limits of that.
	rates          bool
	rate, low, top float64
	verdict        string
	// cache: an entry with the workload's cache is among those that accumulate.
	cache bool
}

// A place in a workload's source, as tools write it.
type place struct{ line, function string }

func (p place) is(frame string) bool {
	return strings.Contains(frame, p.line+")") || p.function != "" && strings.Contains(frame, p.function)
}

func (p place) in(frames []string) bool { return slices.ContainsFunc(frames, p.is) }

// placesOf finds the lines of a workload that are marked as the leak and as the cache.
func placesOf(w workload, folder string) (leak, cache place, err error) {
	text, err := os.ReadFile(filepath.Join(folder, w.source))
	if err != nil {
		return leak, cache, err
	}
	leak, cache = place{function: w.function}, place{function: w.cache}
	for number, line := range strings.Split(string(text), "\n") {
		here := fmt.Sprintf("%s:%d", w.source, number+1)
		switch mark := marked.FindStringSubmatch(line); {
		case mark == nil:
		case mark[1] == "LEAK":
			leak.line = here
		default:
			cache.line = here
		}
	}
	if leak.line == "" || cache.line == "" {
		return leak, cache, fmt.Errorf("%s has no line that is marked as the leak, or none as the cache", w.source)
	}
	return leak, cache, nil
}

// marked is a comment at the end of a line of Python or C.
var marked = regexp.MustCompile(`\b(LEAK|CACHE)( \*/)?$`)

// named is the place of the first entry with the planted line, 1 for the first, and what all of them hold; 0 if there is none.
func (r report) named(leak place) (at int, share float64) {
	for i, e := range r.entries {
		if leak.in(e.frames) {
			if at == 0 {
				at = i + 1
			}
			share += e.share
		}
	}
	return at, share
}

// Of a frame: an address or nothing known, and what only tells of a name where it lies.
var (
	nameless = regexp.MustCompile(`^(0x[0-9a-f]+|<.*|\[.*|)$`)
	details  = regexp.MustCompile(`(\+0x[0-9a-f]+)?( \[.*\]| \(<unknown>:0\)|<[0-9a-f]+>)$|/[^ )]*/`)
)

// shown is what tells a person most of an entry: the frame of the planted line, or else the innermost two that have names.
func (e entry) shown(leak place) string {
	frames := e.frames
	if at := slices.IndexFunc(frames, leak.is); at >= 0 {
		frames = frames[at : at+1]
	}
	var names []string
	for _, frame := range frames {
		name := details.ReplaceAllString(strings.TrimSpace(frame), "")
		if !nameless.MatchString(name) && len(names) < 2 {
			names = append(names, shortened(name))
		}
	}
	if len(names) == 0 {
		return "no name"
	}
	return strings.Join(names, " < ")
}

// shortened keeps what fits into a cell of a table.
func shortened(name string) string {
	const most = 48
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return name
}
