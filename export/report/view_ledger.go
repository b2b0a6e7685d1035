package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// booksOf are the ledger of the process, then that of its tree where there are others.
func booksOf(s *export.Summary) []bookView {
	var books []bookView
	own, p := words.BookOf(s.Ledger, s.Process.PID), words.ResidentOf(s)
	if len(own.Kinds) > 0 {
		title := fmt.Sprintf("%s: %s", pidText(s.Process.PID), words.Signed(own.Sum().Delta))
		book := bookOf(s, own, title, "RSS", p)
		if !p.HeapTraced {
			book.Note = strings.TrimSpace(book.Note + " Who holds heap memory cannot be told: source heap was not attached.")
		}
		books = append(books, book)
	}
	if others := words.OthersOf(s); others > 0 {
		tree := words.BookOf(s.Ledger, 0)
		title := fmt.Sprintf("Its tree, with %s, shared pages once: %s", words.Plural(others, "other process", "other processes"), words.Signed(tree.Sum().Delta))
		books = append(books, bookOf(s, tree, title, "All", export.Resident{HeapTraced: p.HeapTraced}))
	}
	return books
}

// bookOf is a waterfall: from what was resident at the boundary, by all kinds, to what is at the end.
func bookOf(s *export.Summary, b words.Book, title, all string, p export.Resident) bookView {
	lines, sum := b.Lines(len(b.Kinds), p), b.Sum()
	scale := scaleOf(sum, lines)
	out := bookView{Title: title}
	out.add(bookLine{
		Class: "total", What: all + " at the boundary" + secondsNote(", after ", s.BoundaryS) + ": " + words.Bytes(sum.Start()),
		Bar: scale.bar("total", scale.from, sum.Start()),
	})
	at := sum.Start()
	for _, line := range lines {
		out.add(kindLine(scale, line, at))
		at += line.Delta
	}
	out.add(bookLine{
		Class: "total", What: all + " at the end, as the kernel counts", Growth: words.Signed(sum.Delta), End: words.Bytes(sum.End),
		Bar: scale.bar("total", scale.from, sum.End),
	})
	if scale.from > 0 {
		out.Note = "The bars begin at " + words.Bytes(scale.from) + ", not at zero."
	}
	return out
}

func (b *bookView) add(line bookLine) { b.Lines = append(b.Lines, line) }

// kindLine is what one kind adds to, or takes from, what was there.
func kindLine(scale barScale, line words.Line, at float64) bookLine {
	out := bookLine{What: line.What, Growth: words.Signed(line.Delta), End: words.Bytes(line.End), Bar: scale.bar("grown", at, at+line.Delta)}
	if line.Kind == growth.KindUnexplained {
		out.Class = "unexplained"
	}
	if line.Delta < 0 {
		out.Bar.Class = "shrunk"
	}
	if line.Error > 0 {
		out.Error = words.Bytes(line.Error)
		out.Bar.Whisker = scale.whisker(at+line.Delta-line.Error, at+line.Delta+line.Error)
	}
	return out
}

// A barScale maps bytes to the 1000 units of a bar.
type barScale struct{ from, to float64 }

// scaleOf takes in all ends of bars and of their intervals. It begins at zero, or, where the growth is small beside what was there, shortly below.
func scaleOf(sum words.KindSum, lines []words.Line) barScale {
	at := sum.Start()
	low, high := min(at, sum.End), max(at, sum.End)
	for _, line := range lines {
		at += line.Delta
		low, high = min(low, at, max(at-line.Error, 0)), max(high, at+line.Error)
	}
	const worthCutting = 4
	if low > worthCutting*(high-low) {
		return barScale{max(low-(high-low), 0), max(high, low+1)}
	}
	return barScale{min(low, 0), max(high, 1)}
}

// place is where bytes lie, in tenths of units.
func (s barScale) place(bytes float64) float64 {
	return math.Round(10*min(max(1000*(bytes-s.from)/(s.to-s.from), 0), 1000)) / 10
}

func (s barScale) bar(class string, from, to float64) bar {
	low, high := s.place(min(from, to)), s.place(max(from, to))
	return bar{Class: class, From: low, Width: math.Round(10*(high-low)) / 10}
}

// whisker is the path of an interval.
func (s barScale) whisker(low, high float64) string {
	from, to := s.place(low), s.place(high)
	return fmt.Sprintf("M%g 10H%gM%g 5V15M%g 5V15", from, to, from, to)
}
