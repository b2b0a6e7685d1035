package main

import (
	"regexp"
	"slices"
	"strings"
)

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
