package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/units"
)

// An Order is by what stacks are sorted.
type Order int

// The orders.
const (
	ByRate Order = iota
	ByBytes
	ByObjects
	orders
)

func (o Order) String() string { return [...]string{"rate", "bytes", "objects"}[o] }

// next is the order after one.
func (o Order) next() Order { return (o + 1) % orders }

// sorted gives the stacks in an order, the largest first.
func sorted(stacks []Stack, o Order) []Stack {
	stacks = slices.Clone(stacks)
	slices.SortStableFunc(stacks, func(a, b Stack) int {
		byRate, byBytes, byObjects := cmp.Compare(b.rate(), a.rate()), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects)
		tie := cmp.Or(byRate, byBytes, slices.Compare(a.Where, b.Where))
		switch o {
		case ByBytes:
			return cmp.Or(byBytes, tie)
		case ByObjects:
			return cmp.Or(byObjects, tie)
		}
		return tie
	})
	return stacks
}

const (
	usualShown, highShown = 5, 12 // stacks at a time on a usual and on a high terminal
	high                  = 40    // lines, from which a stack may take two
)

// stackRank is the rank of that section alone.
const stackRank = 4

// stackSection is a title, the heads of the columns, and one line for each stack, or two on a high terminal.
func stackSection(s *State, look Look, width int) section {
	t, rows, each := stackRows(s, look, width)
	usual := usualShown
	if look.Height >= high {
		usual = highShown + max(0, look.Height-50)/3
	}
	from, _ := window(rows, look.Scroll, usual*each)
	most := stackHead + len(slices.Concat(rows[from:min(from+usual, len(rows))]...))
	return section{3, most, stackRank, 2, func(width, height int) []string {
		from, until := window(rows, look.Scroll, height-stackHead)
		note := ""
		if until-from < len(rows) {
			note = fmt.Sprintf("%d to %d of %d", from+1, until, len(rows))
		}
		lines := []string{rule(stackTitle(s, look), note, width), dim(t.head(look.Order))}
		return append(lines, slices.Concat(rows[from:until]...)...)
	}}
}

const stackHead = 2 // lines

// stackRows are the lines of each stack, up to so many each.
func stackRows(s *State, look Look, width int) (t table, rows [][]string, each int) {
	stacks := sorted(s.stacks(look), look.Order)
	t, each = tableOf(stacks, look.Order, width), 1
	if look.Height >= high {
		each = 2
	}
	for _, stack := range stacks {
		rows = append(rows, t.lines(stack, width, each))
	}
	if len(rows) == 0 {
		rows = [][]string{{dim("  nothing that was allocated since the attach is alive yet")}}
	}
	return t, rows, each
}

// lastScroll is how many stacks are passed over where the last one is in view.
func lastScroll(s *State, look Look) int {
	width, height := max(look.Width, leastWidth), max(look.Height, leastHeight)
	sections := sectionsOf(s, look, width)
	given, _ := shareOut(sections, height)
	of := slices.IndexFunc(sections, func(s section) bool { return s.rank == stackRank })
	if of < 0 || given[of] == 0 {
		return 0
	}
	_, rows, _ := stackRows(s, look, width)
	from, _ := window(rows, len(rows), given[of]-stackHead)
	return from
}

// window is which of some rows, of one line or more each, are in view: one at least, and the last ones whenever there is room.
func window(rows [][]string, scroll, room int) (from, until int) {
	from = len(rows)
	for left := room; from > 0 && left >= len(rows[from-1]); from-- {
		left -= len(rows[from-1])
	}
	from = min(scroll, from, len(rows)-1)
	for until = from; until < len(rows) && (until == from || room >= len(rows[until])); until++ {
		room -= len(rows[until])
	}
	return from, until
}

func stackTitle(s *State, look Look) string {
	title := "Stacks by " + look.Order.String() + ", " + sinceText(s)
	if s.showsDevice(look) {
		return "Device " + strings.ToLower(title[:1]) + title[1:]
	}
	if s.Overhead.InBursts() {
		title += ", from windows"
	}
	return title
}

// sinceText says from when growth counts.
func sinceText(s *State) string {
	switch {
	case s.Warm:
		return "since the warm-up's end at " + units.Duration(s.Since)
	case s.Since > 0:
		return "since " + units.Duration(s.Since)
	}
	return "since the trace began"
}

// A table has columns as wide as its terminal allows.
type table struct {
	owner   int // width of that column; 0: there is none
	objects bool
}

func tableOf(stacks []Stack, order Order, width int) table {
	const narrow, roomy, longest = 60, 100, 18
	t := table{objects: width >= roomy || order == ByObjects}
	if width < narrow {
		return t
	}
	t.owner = len("owner")
	for _, s := range stacks {
		t.owner = max(t.owner, min(longest, width/5, ansi.StringWidth(safe(s.Owner))))
	}
	return t
}

func (t table) head(o Order) string {
	heads := [...]string{"MiB/min", "bytes", "objects"}
	heads[o] = "▾" + heads[o]
	return t.columns(heads[0], heads[1], heads[2], "owner", "where")
}

// lines of a stack, up to so many: where it is in as many words as there is room for.
func (t table) lines(s Stack, width, most int) []string {
	numbers := t.columns(units.MiBPerMinute(s.BytesPerMin), units.Bytes(float64(s.Bytes)), units.Count(s.Objects), safe(s.Owner), "")
	indent := ansi.StringWidth(numbers)
	var parts []string
	for _, where := range s.Where {
		parts = strings.Split(ansi.Wordwrap(safe(where), max(1, width-indent), ""), "\n")
		if len(parts) <= most {
			break
		}
	}
	if len(parts) > most { // the last line is cut
		parts = append(parts[:most-1], strings.Join(parts[most-1:], " "))
	}
	lines := []string{numbers}
	for i, part := range parts {
		if i == 0 {
			lines[0] += part
			continue
		}
		lines = append(lines, strings.Repeat(" ", indent)+dim(part))
	}
	return lines
}

func (t table) columns(rate, bytes, objects, owner, where string) string {
	parts := []string{right(rate, 9), right(bytes, 9)}
	if t.objects {
		parts = append(parts, right(objects, 8))
	}
	if t.owner > 0 {
		parts = append(parts, " "+left(owner, t.owner))
	}
	return strings.Join(append(parts, " "+where), " ")
}
