package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/words"
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

// sorted gives the stacks in an order, the largest first; by rate those alone that grow.
func sorted(stacks []Stack, o Order) []Stack {
	stacks = slices.Clone(stacks)
	if o == ByRate {
		stacks = slices.DeleteFunc(stacks, func(s Stack) bool { return s.rate() <= 0 })
	}
	slices.SortStableFunc(stacks, func(a, b Stack) int {
		byRate, byBytes, byObjects := cmp.Compare(b.rate(), a.rate()), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects)
		tie := cmp.Or(byRate, byBytes, cmp.Compare(a.Where, b.Where))
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

// mostShown is how many stacks are shown at a time on a high terminal.
const mostShown = 12

// stackSection is a title, the heads of the columns, and one line for each stack, or two on a high terminal.
func stackSection(s *State, look Look, width int) section {
	stacks := sorted(s.Stacks, look.Order)
	t := tableOf(stacks, width)
	usual, each := 5, 1
	if look.Height >= 40 {
		usual, each = mostShown, 2
	}
	most := 2 + each*min(usual, max(1, len(stacks)))
	return section{3, most, 4, 2, func(width, height int) []string {
		shown := max(1, (height-2)/each)
		from := min(look.Scroll, max(0, len(stacks)-shown))
		until := min(from+shown, len(stacks))
		note := ""
		if len(stacks) > shown {
			note = fmt.Sprintf("%d to %d of %d", from+1, until, len(stacks))
		}
		lines := []string{rule(stackTitle(s, look.Order), note, width), dim(t.head(look.Order))}
		if len(stacks) == 0 {
			lines = append(lines, dim("  nothing that is traced has grown"))
		}
		for _, stack := range stacks[from:until] {
			lines = append(lines, t.lines(stack, width, each)...)
		}
		return lines
	}}
}

func stackTitle(s *State, o Order) string {
	return "Stacks by " + o.String() + ", " + sinceText(s)
}

// sinceText says from when growth counts.
func sinceText(s *State) string {
	switch {
	case s.Warm:
		return "since the warm-up's end at " + words.Duration(s.Since)
	case s.Since > 0:
		return "since " + words.Duration(s.Since)
	}
	return "since the trace began"
}

// A table has columns as wide as its terminal allows.
type table struct {
	owner int // width of that column; 0: there is none
	whole bool
}

func tableOf(stacks []Stack, width int) table {
	const narrow, longest = 60, 18
	if width < narrow {
		return table{}
	}
	t := table{owner: len("owner"), whole: true}
	for _, s := range stacks {
		t.owner = max(t.owner, min(longest, width/8, ansi.StringWidth(safe(s.Owner))))
	}
	return t
}

func (t table) head(o Order) string {
	heads := [...]string{"MiB/min", "bytes", "objects"}
	heads[o] = "▾" + heads[o]
	return t.columns(heads[0], heads[1], heads[2], "owner", "where")
}

// lines of a stack: where it is, shortened to one line, or in up to so many.
func (t table) lines(s Stack, width, most int) []string {
	numbers := t.columns(words.PerMinute(s.BytesPerMin), words.Bytes(float64(s.Bytes)), words.Count(s.Objects), safe(s.Owner), "")
	indent := ansi.StringWidth(numbers)
	where := safe(s.Where)
	if most == 1 {
		if ansi.StringWidth(where) > width-indent {
			where = safe(s.Short)
		}
		return []string{numbers + where}
	}
	var lines []string
	for i, part := range strings.Split(ansi.Wordwrap(where, max(1, width-indent), ""), "\n") {
		switch {
		case i == 0:
			lines = append(lines, numbers+part)
		case i < most:
			lines = append(lines, strings.Repeat(" ", indent)+dim(part))
		}
	}
	return lines
}

func (t table) columns(rate, bytes, objects, owner, where string) string {
	parts := []string{right(rate, 9), right(bytes, 9)}
	if t.whole {
		parts = append(parts, right(objects, 8), " "+left(owner, t.owner))
	}
	return strings.Join(append(parts, " "+where), " ")
}
