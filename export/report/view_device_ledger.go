package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// A deviceBook is the ledger of device memory as a waterfall: the first line is what was there at the boundary, the last what is there
// at the end.
type deviceBook struct {
	Title string
	Lines []deviceLine
	Note  string
}

type deviceLine struct {
	// Class is "total" of the first and the last line, "unexplained", or empty.
	Class, What, Owner, Start, End, Change string
	Bar                                    bar
}

// So many rows are shown one by one, of those that stacks hold and of the others; what is left is one row.
const mostHolders, mostUnheld = 12, 24

// deviceBookOf is the ledger of a process, the largest change first.
func deviceBookOf(d *export.Device, boundary *float64) deviceBook {
	if len(d.Ledger) == 0 {
		return deviceBook{}
	}
	lines, sum := deviceLines(d.Ledger)
	var bars []words.Line
	for _, line := range lines {
		bars = append(bars, line.Line)
	}
	scale := scaleOf(sum, bars)
	counted := "as the driver counts"
	if d.Reason != "" {
		counted = "as far as it is known"
	}
	book := deviceBook{Title: "Where it is: " + words.Signed(sum.Delta)}
	book.add(deviceLine{Class: "total", What: "All at the boundary" + secondsNote(", after ", boundary), Start: words.Bytes(sum.Start()), Bar: scale.bar("total", scale.from, sum.Start())})
	at := sum.Start()
	for _, line := range lines {
		out := deviceLine{
			What: line.What, Owner: line.owner, Start: words.Bytes(line.Start()), End: words.Bytes(line.End), Change: words.Signed(line.Delta),
			Bar: scale.bar("grown", at, at+line.Delta),
		}
		if line.Kind == growth.KindNotAttributed {
			out.Class = "unexplained"
		}
		if line.Delta < 0 {
			out.Bar.Class = "shrunk"
		}
		book.add(out)
		at += line.Delta
	}
	book.add(deviceLine{Class: "total", What: "All at the end, " + counted, End: words.Bytes(sum.End), Change: words.Signed(sum.Delta), Bar: scale.bar("total", scale.from, sum.End)})
	if scale.from > 0 {
		book.Note = "The bars begin at " + words.Bytes(scale.from) + ", not at zero."
	}
	return book
}

func (b *deviceBook) add(line deviceLine) { b.Lines = append(b.Lines, line) }

// An ownedLine is a row for people, and whose it is.
type ownedLine struct {
	words.Line
	owner string
}

// deviceLines are the rows for people, and their sum: the largest changes, the others together; what is not attributed comes last.
func deviceLines(ledger []export.DeviceRow) (lines []ownedLine, sum words.KindSum) {
	several := slices.ContainsFunc(ledger, func(r export.DeviceRow) bool { return r.GPU != ledger[0].GPU && r.GPU != "" && ledger[0].GPU != "" })
	rest := ownedLine{}
	holders, unheld, others := 0, 0, 0
	for _, row := range bySize(ledger) {
		held := words.KindSum{Kind: row.Kind, Delta: float64(row.EndBytes) - float64(row.StartBytes), End: float64(row.EndBytes)}
		sum.Delta += held.Delta
		sum.End += held.End
		if row.Function != "" {
			holders++
		} else {
			unheld++
		}
		if row.Function != "" && holders > mostHolders || row.Function == "" && unheld > mostUnheld {
			others++
			rest.Delta += held.Delta
			rest.End += held.End
			continue
		}
		lines = append(lines, ownedLine{words.Line{What: words.DeviceRow(row, several), KindSum: held}, row.Owner})
	}
	if others > 0 {
		rest.What = words.Plural(others, "other", "others")
		lines = append(lines, rest)
	}
	slices.SortStableFunc(lines, func(a, b ownedLine) int { return cmp.Compare(lateness(a.Kind), lateness(b.Kind)) })
	return lines, sum
}

// lateness puts what nobody is named for behind what somebody holds.
func lateness(kind growth.Kind) int {
	if kind == growth.KindNotAttributed {
		return 1
	}
	return 0
}

// bySize are the rows, the largest change first.
func bySize(ledger []export.DeviceRow) []export.DeviceRow {
	change := func(r export.DeviceRow) float64 { return math.Abs(float64(r.EndBytes) - float64(r.StartBytes)) }
	return slices.SortedStableFunc(slices.Values(ledger), func(a, b export.DeviceRow) int {
		return cmp.Or(cmp.Compare(change(b), change(a)), cmp.Compare(b.EndBytes, a.EndBytes), strings.Compare(a.Function, b.Function))
	})
}
