package screen

import (
	"cmp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/words"
)

// Sizes in cells: a smaller terminal is drawn as if it had these, and cut.
const minWidth, minHeight = 20, 3

// twoColumnWidth is the width from which two sections stand side by side.
const twoColumnWidth = 130

// UIState is the user's choice of the parts of a State, and the size of the terminal.
type UIState struct {
	Width, Height int
	Order         Order
	// ShowGPU: the stacks are of GPU memory, where there is any.
	ShowGPU bool
	// Scroll is how many stacks are skipped.
	Scroll int
	Help   bool
	// Writing: a mark is typed, and Draft is its text so far.
	Writing bool
	Draft   string
	// Leaving: the trace was asked to end.
	Leaving bool
	// Log has the latest lines of the log, oldest first.
	Log []string
}

// section is a part of the screen. Sections lie below each other.
type section struct {
	// min and max are its lines; it has none where there is no room for min.
	min, max int
	// rank is the order in which sections get their min, growRank that in which they get more; 0 is
	// the first.
	rank, growRank int
	draw           func(width, height int) []string
}

// Render draws a state in ui.Height lines, none of them wider than ui.Width.
func Render(s *State, ui UIState) string {
	width, height := max(ui.Width, minWidth), max(ui.Height, minHeight)
	lines := layOut(sectionsOf(s, ui, width), width, height)
	lines = lines[:min(len(lines), max(ui.Height, 0))]
	for i := range lines {
		lines[i] = fit(lines[i], ui.Width)
	}
	return strings.Join(lines, "\n")
}

// layOut distributes the lines, and draws the sections. Lines that no section needs are left blank
// between the sections, and before the last one, which lies at the bottom.
func layOut(sections []section, width, height int) []string {
	given, room := distribute(sections, height)
	spaced := room >= len(sections)
	var lines []string

	for i, s := range sections {
		if i == len(sections)-1 {
			lines = append(lines, make([]string, height-given[i]-len(lines))...)
		}
		if given[i] > 0 {
			lines = append(lines, exactly(s.draw(width, given[i]), given[i])...)
			if spaced && i < len(sections)-1 {
				lines = append(lines, "")
			}
		}
	}

	return lines
}

// distribute returns the lines of each section, and how many are left.
func distribute(sections []section, height int) (given []int, room int) {
	given, room = make([]int, len(sections)), height
	for _, i := range ordered(sections, func(s section) int { return s.rank }) {
		if sections[i].min <= room {
			given[i] = sections[i].min
			room -= given[i]
		}
	}

	for _, i := range ordered(sections, func(s section) int { return s.growRank }) {
		if given[i] > 0 {
			more := min(room, sections[i].max-given[i])
			given[i] += more
			room -= more
		}
	}

	return given, room
}

// ordered returns the indices of sections, the lowest key first.
func ordered(sections []section, key func(section) int) []int {
	indices := make([]int, len(sections))
	for i := range indices {
		indices[i] = i
	}
	slices.SortStableFunc(indices, func(a, b int) int {
		return cmp.Compare(key(sections[a]), key(sections[b]))
	})
	return indices
}

// exactly cuts lines, or appends blank ones.
func exactly(lines []string, height int) []string {
	lines = lines[:min(len(lines), height)]
	return append(lines, make([]string, height-len(lines))...)
}

func sectionsOf(s *State, ui UIState, width int) []section {
	header := section{1, 1, 0, 0, func(width, _ int) []string {
		return []string{headerLine(s, width)}
	}}

	footer := section{1, 1, 1, 0, func(width, _ int) []string {
		return []string{footerLine(s, ui, width)}
	}}

	if ui.Help {
		lines := words.ScreenHelp(s.GPU != nil)
		return []section{
			header,
			{1, len(lines), 2, 0, func(int, int) []string { return lines }},
			footer,
		}
	}

	parts := []section{header, rssSection(s, ui.Height)}
	if s.GPU != nil {
		parts = append(parts, gpuSection(s, ui.Height))
	}

	parts = append(parts, verdictSection(s, width, ui.Height), stackSection(s, ui, width))
	if width >= twoColumnWidth {
		parts = append(parts, beside(breakdownSection(s), sideSection(s, ui)))
	} else {
		parts = append(parts, breakdownSection(s), factSection(s, width))
		if s.MarkCount > 0 {
			parts = append(parts, markSection(s))
		}
		if len(ui.Log) > 0 {
			parts = append(parts, logSection(ui))
		}
	}

	parts = append(parts, footer)
	parts[1].fill(parts, ui.Height)
	return parts
}

// fill raises max by the lines that no section of all needs, up to half of the height.
func (s *section) fill(all []section, height int) {
	room := height - len(all) + s.max // a line between each two
	for _, other := range all {
		room -= other.max
	}
	s.max = max(s.max, min(height/2, room))
}

// beside draws two sections side by side. It has the ranks of the first.
func beside(a, b section) section {
	const gap = 3
	draw := func(width, height int) []string {
		half := (width - gap) / 2
		first := exactly(a.draw(half, height), height)
		second := exactly(b.draw(width-gap-half, height), height)
		lines := make([]string, height)
		for i := range lines {
			lines[i] = left(first[i], half) + strings.Repeat(" ", gap) + second[i]
		}
		return lines
	}
	return section{max(a.min, b.min), max(a.max, b.max), a.rank, a.growRank, draw}
}
