package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/test/harness"
)

// A report has the stacks that a tool reports, each leaf first, by their memory.
type report struct {
	stacks [][]string
	rank   int // of the first stack with the leak, from 1; 0: there is none

	// The rest is of allocscope: how fast the stacks with the leak grow, in bytes a minute; whether
	// one with the program's cache is said to accumulate; by how many bytes the rows of the RSS
	// breakdown miss RSS.
	rate  float64
	cache bool
	off   int64
}

// A place is in a program's source, as tools write it. function is empty for Python.
type place struct{ line, function string }

func (p place) is(frame string) bool {
	isFunction := p.function != "" && strings.Contains(frame, p.function)
	return isFunction || p.line != "" && strings.Contains(frame, p.line+")")
}

func (p place) in(frames []string) bool { return slices.ContainsFunc(frames, p.is) }

// placesOf returns the lines of a program that are marked as the leak and as the cache, which not
// all have.
func placesOf(p program, folder string) (leak, cache place, err error) {
	leak, cache = place{function: p.function}, place{function: p.cache}
	if p.source == "" {
		return leak, cache, nil
	}

	path := filepath.Join(folder, p.source)
	if leak.line, err = harness.Line(path, isLeak.MatchString); err != nil {
		return leak, cache, err
	}
	cache.line, _ = harness.Line(path, isCache.MatchString)
	return leak, cache, nil
}

// isLeak and isCache match a comment at the end of a line of Python or C.
var (
	isLeak  = regexp.MustCompile(`\bLEAK( \*/)?$`)
	isCache = regexp.MustCompile(`\bCACHE( \*/)?$`)
)

// rankOf returns the position of the first stack with a place, from 1; 0 if there is none.
func (r report) rankOf(p place) int { return 1 + slices.IndexFunc(r.stacks, p.in) }
