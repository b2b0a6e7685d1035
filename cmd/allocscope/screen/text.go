package screen

import (
	"math"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/growth"
)

// Colours of the texts and charts.
const (
	red, amber, green = console.Red, console.Amber, console.Green

	blue = ansi.IndexedColor(31)
	grey = console.Grey
)

func colored(color ansi.IndexedColor, text string) string {
	return ansi.NewStyle().ForegroundColor(color).Styled(text)
}

func dim(text string) string { return colored(grey, text) }

func bold(text string) string { return ansi.NewStyle().Bold().Styled(text) }

func boldIn(color ansi.IndexedColor, text string) string {
	return ansi.NewStyle().Bold().ForegroundColor(color).Styled(text)
}

// safeLines makes each line safe.
func safeLines(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, safe(line))
	}
	return out
}

// maxRunes of a text are drawn: a screen shows no more.
const maxRunes = 1000

// safe returns a text whose width in cells is known: printable, in one line, from left to right,
// without characters that terminals join with their neighbours in different ways.
func safe(text string) string {
	runes := 0
	for i := range text {
		if runes++; runes > maxRunes {
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
	}, growth.Printable(text))
}

// isRightToLeft reports whether the default direction of a character's block is right to left
// (https://www.unicode.org/Public/UCD/latest/ucd/extracted/DerivedBidiClass.txt).
func isRightToLeft(r rune) bool {
	return 0x590 <= r && r <= 0x8ff || 0xfb1d <= r && r <= 0xfdff || 0xfe70 <= r && r <= 0xfeff ||
		0x10800 <= r && r <= 0x10fff || 0x1e800 <= r && r <= 0x1efff
}

// isJoined reports whether a character joins its neighbours: halves of flags, skin tones, spacing
// vowels, Hangul jamo.
func isJoined(r rune) bool {
	return 0x1f1e6 <= r && r <= 0x1f1ff || 0x1f3fb <= r && r <= 0x1f3ff ||
		0x1160 <= r && r <= 0x11ff || 0xd7b0 <= r && r <= 0xd7ff || unicode.Is(unicode.Mc, r)
}

// fit cuts a line to a width in cells.
func fit(line string, width int) string { return ansi.Truncate(line, max(width, 0), "…") }

// left pads a line at its end to a width, right at its start. Both cut a longer line.
func left(line string, width int) string {
	line = fit(line, width)
	return line + strings.Repeat(" ", max(0, width-ansi.StringWidth(line)))
}

func right(line string, width int) string {
	line = fit(line, width)
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(line))) + line
}

// joinParts joins parts by a dot, in as many lines as they need.
func joinParts(parts []string, width int) []string {
	const dot = " · "
	var lines []string
	for _, part := range parts {
		last := len(lines) - 1
		if last >= 0 {
			joined := lines[last] + dim(dot) + part
			if ansi.StringWidth(joined) <= width {
				lines[last] = joined
				continue
			}
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

	dashes := max(0, width-ansi.StringWidth(title)-ansi.StringWidth(note))
	return fit(title+dim(strings.Repeat("─", dashes))+note, width)
}

var horizontalBlocks = []rune(" ▏▎▍▌▋▊▉█")

// bar is a horizontal bar of a share (0 to 1) of a width.
func bar(share float64, width int) string {
	if !(share > 0) || width <= 0 {
		return ""
	}

	eighths := int(math.Round(min(share, 1) * float64(8*width)))
	text := strings.Repeat(string(horizontalBlocks[8]), eighths/8)
	if part := eighths % 8; part > 0 {
		text += string(horizontalBlocks[part])
	}
	return text
}
