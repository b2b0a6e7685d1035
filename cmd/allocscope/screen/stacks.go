package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// Order is the order of the stacks.
type Order int

// The orders.
const (
	ByRate Order = iota
	ByBytes
	ByObjects
	orders
)

// String returns the name of the column.
func (o Order) String() string { return [...]string{"rate", "bytes", "objects"}[o] }

// next is the order after one.
func (o Order) next() Order { return (o + 1) % orders }

// sorted returns the stacks in an order, the largest first.
func sorted(stacks []Stack, o Order) []Stack {
	stacks = slices.Clone(stacks)
	slices.SortStableFunc(stacks, func(a, b Stack) int {
		byRate, byBytes := cmp.Compare(b.rate(), a.rate()), cmp.Compare(b.Bytes, a.Bytes)
		byObjects := cmp.Compare(b.Objects, a.Objects)
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
	shownStacks, shownStacksTall = 5, 12 // at a time, on a usual and on a tall terminal
	tallHeight                   = 40    // lines, from which a stack may have two
	stackHeadLines               = 2
)

// stackRank is the rank of the section of stacks alone.
const stackRank = 4

// stackSection has a title, the heads of the columns, and one line for each stack, or two on a tall
// terminal.
func stackSection(s *State, ui UIState, width int) section {
	t, rows, each := stackRows(s, ui, width)
	usual := shownStacks
	if ui.Height >= tallHeight {
		usual = shownStacksTall + max(0, ui.Height-50)/3
	}

	from, _ := visibleRows(rows, ui.Scroll, usual*each)
	most := stackHeadLines + len(slices.Concat(rows[from:min(from+usual, len(rows))]...))
	return section{3, most, stackRank, 2, func(width, height int) []string {
		from, until := visibleRows(rows, ui.Scroll, height-stackHeadLines)
		note := ""
		if until-from < len(rows) {
			note = fmt.Sprintf("%d to %d of %d", from+1, until, len(rows))
		}
		lines := []string{rule(stackTitle(s, ui), note, width), dim(t.head(ui.Order))}
		return append(lines, slices.Concat(rows[from:until]...)...)
	}}
}

// stackRows returns the lines of each stack, and how many a stack may have.
func stackRows(s *State, ui UIState, width int) (t table, rows [][]string, each int) {
	stacks := sorted(s.stacks(ui), ui.Order)
	t, each = tableOf(stacks, ui.Order, width), 1
	if ui.Height >= tallHeight {
		each = 2
	}

	for _, stack := range stacks {
		rows = append(rows, t.lines(stack, width, each))
	}

	if len(rows) == 0 {
		rows = [][]string{{dim("  " + words.NothingAlive)}}
	}
	return t, rows, each
}

// lastScroll is how many stacks are skipped where the last one is in view.
func lastScroll(s *State, ui UIState) int {
	width, height := max(ui.Width, minWidth), max(ui.Height, minHeight)
	sections := sectionsOf(s, ui, width)
	given, _ := distribute(sections, height)
	of := slices.IndexFunc(sections, func(s section) bool { return s.rank == stackRank })
	if of < 0 || given[of] == 0 {
		return 0
	}

	_, rows, _ := stackRows(s, ui, width)
	from, _ := visibleRows(rows, len(rows), given[of]-stackHeadLines)
	return from
}

// visibleRows returns which rows, of one line or more each, are in view: at least one, and the last
// ones where there is room.
func visibleRows(rows [][]string, scroll, room int) (from, until int) {
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

func stackTitle(s *State, ui UIState) string {
	by := " by " + ui.Order.String() + ", " + words.Since(s.Since, s.Warm)
	switch {
	case s.showsGPU(ui):
		return "GPU stacks" + by
	case s.Overhead.InBursts():
		return "Stacks" + by + ", sampled in bursts"
	}
	return "Stacks" + by
}

// table has columns as wide as its terminal allows.
type table struct {
	component int // width of that column; 0: there is none
	objects   bool
}

func tableOf(stacks []Stack, order Order, width int) table {
	const componentFrom, objectsFrom, maxComponent = 60, 100, 18 // cells

	t := table{objects: width >= objectsFrom || order == ByObjects}
	if width < componentFrom {
		return t
	}

	t.component = len("component")
	for _, s := range stacks {
		t.component = max(t.component, min(maxComponent, width/5,
			ansi.StringWidth(safe(s.Component))))
	}
	return t
}

func (t table) head(o Order) string {
	heads := [...]string{"MiB/min", "bytes", "objects"}
	heads[o] = "▾" + heads[o]
	return t.columns(heads[0], heads[1], heads[2], "component", "where")
}

// lines returns at most so many lines of a stack, with as many words as there is room for.
func (t table) lines(s Stack, width, most int) []string {
	numbers := t.columns(units.MiBPerMinute(s.BytesPerMin), units.Bytes(float64(s.Bytes)),
		units.Count(s.Objects), safe(s.Component), "")
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

func (t table) columns(rate, bytes, objects, component, where string) string {
	parts := []string{right(rate, 9), right(bytes, 9)}
	if t.objects {
		parts = append(parts, right(objects, 8))
	}
	if t.component > 0 {
		parts = append(parts, " "+left(component, t.component))
	}
	return strings.Join(append(parts, " "+where), " ")
}
