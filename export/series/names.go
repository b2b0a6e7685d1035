package series

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// xNames and yNames are the usual names of times and sizes, without units, the preferred ones
// first.
var (
	timeNames = strings.Fields("time elapsed elapsed_time timestamp ts t date datetime uptime " +
		"wall_time relative_time")
	stepNames = strings.Fields("step steps global_step iteration iterations iter it batch")
	xNames    = slices.Concat(timeNames,
		strings.Fields("seconds second secs sec s ms minutes min hours"), stepNames,
		strings.Fields("step_or_seconds"))
	yNames = strings.Fields("rss vmrss resident resident_memory process_resident_memory " +
		"rss_total total_rss uss private pss real mem memory memory_usage mem_usage used heap " +
		"heap_size")
)

// A name is the parsed name of a column, or of a number in a log.
type name struct {
	text string
	base string   // lower case, without the unit, words joined by "_"
	size float64  // bytes; 0: the name has no unit of size
	time timeUnit // zero: the name has no unit of time
}

// nameOf parses names such as "rss_mb", "Elapsed time (s)" and "rss (KiB)".
func nameOf(text string) name {
	n := name{text: text}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if len(words) == 0 {
		return n
	}

	before, last := words[:len(words)-1], words[len(words)-1]
	if !strings.Contains("kmgt", last) { // these letters are no units in names
		n.size = sizeUnits[last]
	}

	isStep := func(word string) bool { return slices.Contains(stepNames, word) }
	if unit := timeUnits[last]; unit.steps || !slices.ContainsFunc(before, isStep) {
		n.time = unit
	}

	if len(before) > 0 && (n.size != 0 || n.time.seconds != 0) {
		words = before
	}

	n.base = strings.Join(words, "_")

	switch {
	case n.time.explicit:
	case slices.Contains(timeNames, n.base):
		n.time = timeUnit{seconds: 1}
	case isStep(n.base):
		n.time = timeUnits["steps"]
	}

	// Some tools name another unit than they write: /proc writes KiB as kB, psrecord MiB as MB.
	switch {
	case n.base == "vmrss":
		n.size = sizeUnits["kib"]
	case n.base == "real" && n.size == sizeUnits["mb"]:
		n.size = sizeUnits["mib"]
	}

	return n
}

func namesOf(texts []string) []name {
	names := make([]name, len(texts))
	for i, text := range texts {
		names[i] = nameOf(text)
	}
	return names
}

// find returns the column that the user wants, by its name with or without the unit, or else the
// one with the most usual name; -1 if there is none.
func find(columns []name, want string, usual []string) int {
	if want != "" {
		usual = []string{want, cmp.Or(nameOf(want).base, want)}
	}

	for _, u := range usual {
		isUsual := func(c name) bool { return c.base == u || strings.EqualFold(c.text, u) }
		if i := slices.IndexFunc(columns, isUsual); i >= 0 {
			return i
		}
	}

	return -1
}
