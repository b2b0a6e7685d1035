package live

import (
	"cmp"
	"slices"
	"strings"
)

// Sizes in cells: a smaller terminal is drawn as if it had these, and cut.
const leastWidth, leastHeight = 20, 3

// wide is the width from which two sections stand side by side.
const wide = 130

// A Look is what the user has chosen to see of a State, and of what size.
type Look struct {
	Width, Height int
	Order         Order
	// Device: the stacks are those of device memory, where there is any.
	Device bool
	// Scroll is how many stacks are passed over.
	Scroll int
	Help   bool
	// Writing a mark: Draft is what has been typed of it.
	Writing bool
	Draft   string
	// Leaving: the trace has been told to end.
	Leaving bool
	// Log holds the latest lines that were logged, oldest first.
	Log []string
}

// A section is a part of the screen, from top to bottom.
type section struct {
	// least and most lines that it takes; none where there is no room for the least.
	least, most int
	// rank is who gets its least first, and grows is who gets more first, 0 being the first.
	rank, grows int
	draw        func(width, height int) []string
}

// Render draws a state: Look.Height lines, none wider than Look.Width.
func Render(s *State, look Look) string {
	width, height := max(look.Width, leastWidth), max(look.Height, leastHeight)
	lines := layOut(sectionsOf(s, look, width), width, height)
	lines = lines[:min(len(lines), max(look.Height, 0))]
	for i := range lines {
		lines[i] = fit(lines[i], look.Width)
	}
	return strings.Join(lines, "\n")
}

// layOut gives each section its least by rank as long as there is room, shares out the rest, and draws them. What is left then comes
// between the sections, and before the last one, which stands at the bottom.
func layOut(sections []section, width, height int) []string {
	given, room := shareOut(sections, height)
	airy := room >= len(sections)
	var lines []string
	for i, s := range sections {
		if i == len(sections)-1 {
			lines = append(lines, make([]string, height-given[i]-len(lines))...)
		}
		if given[i] > 0 {
			lines = append(lines, exactly(s.draw(width, given[i]), given[i])...)
			if airy && i < len(sections)-1 {
				lines = append(lines, "")
			}
		}
	}
	return lines
}

// shareOut gives each section its lines, and tells how many are left.
func shareOut(sections []section, height int) (given []int, room int) {
	given, room = make([]int, len(sections)), height
	for _, i := range ordered(sections, func(s section) int { return s.rank }) {
		if sections[i].least <= room {
			given[i] = sections[i].least
			room -= given[i]
		}
	}
	for _, i := range ordered(sections, func(s section) int { return s.grows }) {
		if given[i] > 0 {
			more := min(room, sections[i].most-given[i])
			given[i] += more
			room -= more
		}
	}
	return given, room
}

// ordered are the indices of sections, the lowest first.
func ordered(sections []section, by func(section) int) []int {
	indices := make([]int, len(sections))
	for i := range indices {
		indices[i] = i
	}
	slices.SortStableFunc(indices, func(a, b int) int { return cmp.Compare(by(sections[a]), by(sections[b])) })
	return indices
}

func exactly(lines []string, height int) []string {
	lines = lines[:min(len(lines), height)]
	return append(lines, make([]string, height-len(lines))...)
}

func sectionsOf(s *State, look Look, width int) []section {
	header := section{1, 1, 0, 0, func(width, _ int) []string { return []string{headerLine(s, width)} }}
	footer := section{1, 1, 1, 0, func(width, _ int) []string { return []string{footerLine(s, look, width)} }}
	if look.Help {
		lines := helpOf(s)
		return []section{header, {1, len(lines), 2, 0, func(int, int) []string { return lines }}, footer}
	}
	parts := []section{header, rssSection(s, look.Height)}
	if s.Device != nil {
		parts = append(parts, deviceSection(s, look.Height))
	}
	parts = append(parts, verdictSection(s, width, look.Height), stackSection(s, look, width))
	if width >= wide {
		parts = append(parts, beside(ledgerSection(s), asideSection(s, look)))
	} else {
		parts = append(parts, ledgerSection(s), factSection(s, width))
		if s.MarkCount > 0 {
			parts = append(parts, markSection(s))
		}
		if len(look.Log) > 0 {
			parts = append(parts, logSection(look))
		}
	}
	parts = append(parts, footer)
	parts[1].fill(parts, look.Height)
	return parts
}

// fill lets a section grow by what no other of all has a use for, up to half of the height.
func (s *section) fill(all []section, height int) {
	room := height - len(all) + s.most // a line between each two
	for _, other := range all {
		room -= other.most
	}
	s.most = max(s.most, min(height/2, room))
}

// beside draws two sections next to each other. It ranks as the first.
func beside(a, b section) section {
	const gap = 3
	draw := func(width, height int) []string {
		half := (width - gap) / 2
		first, second := exactly(a.draw(half, height), height), exactly(b.draw(width-gap-half, height), height)
		lines := make([]string, height)
		for i := range lines {
			lines[i] = left(first[i], half) + strings.Repeat(" ", gap) + second[i]
		}
		return lines
	}
	return section{max(a.least, b.least), max(a.most, b.most), a.rank, a.grows, draw}
}
