package growth

import (
	"fmt"
	"math"
	"slices"
)

// An Advice is something to try, with the numbers that speak for it.
type Advice struct {
	// About is one of About….
	About string
	// PID of the process that it is about; 0: the tree.
	PID int
	// Text is one line.
	Text string
}

// What an advice is about.
const (
	AboutRetained   = "fragmentation"
	AboutCopies     = "copy-on-write"
	AboutRecompiles = "recompilation"
	AboutPinned     = "pinned memory"
	AboutCache      = "page cache"
)

// Evidence is what advice is given on.
type Evidence struct {
	// Ledger of a window, as the function of that name gives it.
	Ledger []LedgerRow
	// Start and End are Snapshot.Residents at its ends.
	Start, End []Resident
	Owners     *Owners
	// CacheStart and CacheEnd are the page cache of files that the container was charged for at the ends, in bytes; Unknown
	// where no container limits.
	CacheStart, CacheEnd int64
}

const (
	// matters is growth in bytes below which nobody changes a program: the price of one thread's arena.
	matters = 64 << 20
	// partOfGrowth is the share of the growth of RSS that is worth a change.
	partOfGrowth = 0.1
	// partOfRSS that lies idle in the allocator is more than any program needs in reserve: malloc gives the top of an arena
	// back by itself. Below idleMatters bytes it is nobody's trouble.
	partOfRSS   = 0.25
	idleMatters = 16 << 20
	// manyArenas: with fewer, a limit to their number changes nothing.
	manyArenas = 4
	// most of something.
	most = 0.5
	// compiledMatters is growth in bytes of what a compiler holds: a compiled graph with its guards takes some MiB.
	compiledMatters = 16 << 20
	// recompiles is how many more modules say that something is compiled again and again: dynamo's own limit for one function.
	recompiles = 8
	// cacheMatters is growth of page cache in bytes that looks like a leak from outside; up to one part in cacheBeside of it,
	// RSS may grow beside it.
	cacheMatters = 256 << 20
	cacheBeside  = 10
)

// Advise gives what the evidence speaks for: nothing without it. The order is that of the constants About…, then that of
// Evidence.End.
func Advise(e Evidence) []Advice {
	return slices.Concat(
		e.each(AboutRetained, e.retained), tree(AboutCopies, e.copies()), e.each(AboutRecompiles, e.recompiled),
		e.each(AboutPinned, e.pinned), tree(AboutCache, e.cache()),
	)
}

// each asks for an advice to each process that is there at the end; empty: there is none.
func (e *Evidence) each(about string, advise func(p *Resident) string) []Advice {
	var advice []Advice
	for i := range e.End {
		if text := advise(&e.End[i]); text != "" {
			advice = append(advice, Advice{About: about, PID: e.End[i].PID, Text: text})
		}
	}
	return advice
}

func tree(about, text string) []Advice {
	if text == "" {
		return nil
	}
	return []Advice{{About: about, Text: text}}
}

// A ledgerSum is some rows of a ledger together, in bytes.
type ledgerSum struct {
	start, end int64
	err        float64
}

func (e *Evidence) sum(which func(r *LedgerRow) bool) ledgerSum {
	var sum ledgerSum
	for i := range e.Ledger {
		if r := &e.Ledger[i]; which(r) {
			sum.start += r.Start
			sum.end += r.End
			sum.err = math.Hypot(sum.err, r.Error)
		}
	}
	return sum
}

func (s *ledgerSum) delta() int64 { return s.end - s.start }

// grewBy is true of growth that is proven and not less than so many bytes.
func (s *ledgerSum) grewBy(bytes int64) bool {
	return s.delta() >= bytes && float64(s.delta()) > s.err
}

// growth of the RSS of a process over the window, in bytes; 0 where it is not known at both ends.
func (e *Evidence) growth(p *Resident) int64 {
	for i := range e.Start {
		if s := &e.Start[i]; s.PID == p.PID && s.RSS != Unknown && p.RSS != Unknown {
			return p.RSS - s.RSS
		}
	}
	return 0
}

func wholeMiB(bytes int64) int64 { return int64(math.Round(float64(bytes) / (1 << 20))) }

// counted is "1 arena", "12 arenas".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
