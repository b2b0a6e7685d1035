package live

import (
	"math"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// Widths of the columns of the ledger.
const changeWidth, errorWidth, endWidth, longestKind, leastBar = 10, 12, 10, 34, 6

// ledgerSection is a bar for each kind of memory: how much of the growth of RSS it is.
func ledgerSection(s *State) section {
	return section{5, 11, 6, 4, func(width, height int) []string {
		title := "Where the growth of RSS is"
		if sum := s.Book.Sum(); len(s.Book.Kinds) > 0 {
			title += ": " + units.Signed(sum.Delta) + " " + sinceText(s)
		}
		lines := []string{rule(title, "", width)}
		if len(s.Book.Kinds) == 0 {
			return append(lines, dim("  not looked at yet"))
		}
		rows := s.Book.Lines(max(0, height-3), s.Resident)
		largest := 0.0
		for _, row := range rows {
			largest = max(largest, math.Abs(row.Delta))
		}
		for _, row := range rows {
			lines = append(lines, ledgerLine(row, largest, width))
		}
		return lines
	}}
}

func ledgerLine(row words.BreakdownLine, largest float64, width int) string {
	err := ""
	if row.Error > 0 {
		err = " ± " + units.Bytes(row.Error)
	}
	line := right(units.Signed(row.Delta), changeWidth)
	kind := min(longestKind, width/2)
	room := width - changeWidth - kind - 3
	if room >= endWidth+errorWidth+leastBar {
		line += dim(left(err, errorWidth))
		room -= errorWidth
	}
	line += "  " + left(safe(row.Label), kind) + " "
	if room < endWidth {
		return line
	}
	color := red
	if row.Delta < 0 {
		color = green
	}
	bars := max(0, room-endWidth)
	return line + in(color, left(bar(share(row.Delta, largest), bars), bars)) + dim(right(units.Bytes(row.End), endWidth))
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Abs(part) / whole
}
