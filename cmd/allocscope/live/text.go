package live

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/tracer/process"
)

// mostRunes of a text are looked at: a screen shows no more.
const mostRunes = 1000

// safe makes of any text one that takes the cells that it seems to: printable, in one line, written from left to right, without what
// terminals join with its neighbours each in its own way.
func safe(text string) string {
	runes := 0
	for i := range text {
		if runes++; runes > mostRunes {
			text = text[:i]
			break
		}
	}
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
			return -1
		case isRightToLeft(r) || isJoined(r):
			return '?'
		}
		return r
	}, process.Printable(text))
}

// isRightToLeft is true in the blocks whose characters run from right to left by default (Unicode's DerivedBidiClass).
func isRightToLeft(r rune) bool {
	return 0x590 <= r && r <= 0x8ff || 0xfb1d <= r && r <= 0xfdff || 0xfe70 <= r && r <= 0xfeff || 0x10800 <= r && r <= 0x10fff ||
		0x1e800 <= r && r <= 0x1efff
}

// isJoined is true of halves of flags, of skin tones, of spacing vowels, and of the parts of syllables.
func isJoined(r rune) bool {
	return 0x1f1e6 <= r && r <= 0x1f1ff || 0x1f3fb <= r && r <= 0x1f3ff || unicode.Is(unicode.Mc, r) ||
		0x1160 <= r && r <= 0x11ff || 0xd7b0 <= r && r <= 0xd7ff
}

// fit cuts a line to a width in cells.
func fit(line string, width int) string { return ansi.Truncate(line, max(width, 0), "…") }

// left fills a line up to a width, right does so before it. Both cut it where it is longer.
func left(line string, width int) string {
	line = fit(line, width)
	return line + strings.Repeat(" ", max(0, width-ansi.StringWidth(line)))
}

func right(line string, width int) string {
	line = fit(line, width)
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(line))) + line
}

// wrapped joins parts by a dot in as many lines as they take.
func wrapped(parts []string, width int) []string {
	const dot = " · "
	var lines []string
	for _, part := range parts {
		last := len(lines) - 1
		if last >= 0 && ansi.StringWidth(lines[last])+len(" · ")-1+ansi.StringWidth(part) <= width {
			lines[last] += dim(dot) + part
			continue
		}
		lines = append(lines, part)
	}
	return lines
}

// rule is a line with a title at its start and a note at its end.
func rule(title, note string, width int) string {
	title = dim("── ") + bold(title) + " "
	if note != "" {
		note = " " + note + dim(" ──")
	}
	if room := width - ansi.StringWidth(title); ansi.StringWidth(note) > room-2 {
		note = ""
	}
	return fit(title+dim(strings.Repeat("─", max(0, width-ansi.StringWidth(title)-ansi.StringWidth(note))))+note, width)
}
