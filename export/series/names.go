package series

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// xNames and yNames are the usual names of times and sizes without their units, those to be preferred first.
var (
	timeNames = []string{"time", "elapsed", "elapsed_time", "timestamp", "ts", "t", "date", "datetime", "uptime", "wall_time", "relative_time"}
	stepNames = []string{"step", "steps", "global_step", "iteration", "iterations", "iter", "it", "batch"}
	xNames    = slices.Concat(timeNames, []string{"seconds", "second", "secs", "sec", "s", "ms", "minutes", "min", "hours"}, stepNames)
	yNames    = []string{
		"rss", "vmrss", "resident", "resident_memory", "process_resident_memory", "rss_total", "total_rss", "uss", "private", "pss", "real",
		"mem", "memory", "memory_usage", "mem_usage", "used", "heap", "heap_size",
	}
)

// A name is the name of a column, taken apart.
type name struct {
	base string   // lower case, without the unit, words joined by "_"
	size float64  // bytes; 0: no unit of size in the name
	time timeUnit // zero: none in the name
}

// nameOf reads names such as "rss_mb", "Elapsed time (s)", "rss (KiB)".
func nameOf(text string) name {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(words) == 0 {
		return name{}
	}
	n := name{}
	last := words[len(words)-1]
	unit, timed := timeUnits[last]
	size, sized := sizeUnits[last]
	if !strings.Contains("kmgt", last) && sized {
		n.size = size
	}
	before := words[:len(words)-1]
	if timed && !slices.ContainsFunc(before, func(w string) bool { return !unit.steps && slices.Contains(stepNames, w) }) {
		n.time = unit
	}
	if len(before) > 0 && (n.size != 0 || n.time.explicit && !unit.steps) {
		words = before
	}
	n.base = strings.Join(words, "_")
	switch {
	case n.time.explicit:
	case slices.Contains(timeNames, n.base):
		n.time = timeUnit{seconds: 1}
	case slices.Contains(stepNames, n.base):
		n.time = timeUnits["steps"]
	}
	return n
}

// sizeOf is the unit of a column of sizes in bytes, 0 where its name does not tell it. Some tools write another than they name.
func (n name) sizeOf() float64 {
	switch {
	case n.base == "vmrss":
		return sizeUnits["kib"] // /proc writes kB
	case n.base == "real" && n.size == sizeUnits["mb"]:
		return sizeUnits["mib"] // psrecord writes MB
	}
	return n.size
}

// find gives the column that the user wants, else the one with the most usual name; -1 where none has such a name. The error
// says that there is no column as wanted.
func find(columns []string, want string, usual []string) (int, error) {
	if want == "" {
		for _, base := range usual {
			if i := slices.IndexFunc(columns, func(c string) bool { return nameOf(c).base == base }); i >= 0 {
				return i, nil
			}
		}
		return -1, nil
	}
	if i := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, want) }); i >= 0 {
		return i, nil
	}
	if i, err := strconv.Atoi(want); err == nil && i >= 1 && i <= len(columns) {
		return i - 1, nil
	}
	return -1, fmt.Errorf("find column %.40q: there are %s", want, list(columns))
}

// mentionsX tells a name of which some word is a usual one of times, such as "step_or_seconds".
func mentionsX(column string) bool {
	return slices.ContainsFunc(strings.Split(nameOf(column).base, "_"), func(w string) bool { return slices.Contains(xNames, w) })
}

// list names columns for people.
func list(columns []string) string {
	const most = 12
	var quoted []string
	for _, c := range columns[:min(most, len(columns))] {
		quoted = append(quoted, quote([]byte(c)))
	}
	if len(columns) > most {
		quoted = append(quoted, fmt.Sprintf("%d more", len(columns)-most))
	}
	return strings.Join(quoted, ", ")
}
