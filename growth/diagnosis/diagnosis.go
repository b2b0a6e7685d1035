// Package diagnosis divides the growth of resident memory into causes, by formulas over the rows of
// a breakdown. docs/reference/verdict.md has the formulas.
package diagnosis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Cause is why resident memory grows.
type Cause int

// The causes.
const (
	Undecided     Cause = iota // the rest of the growth
	HeapLeak                   // objects of stacks that accumulate
	PythonObjects              // arenas of pymalloc
	Tensors                    // storages of tensors, as censuses count them
	Fragmentation              // freed memory that malloc keeps
	MmapGrowth                 // private memory that was mapped besides malloc
	SharedMemory               // /dev/shm, memfd, System V
	CopyOnWrite                // copies that forked processes made
	PageCache                  // pages of mapped files, which the kernel can take back
	Pinned                     // page-locked for copies to a GPU
	OlderMemory                // blocks and mappings older than the trace, touched now
	NumCauses                  // their number
)

// causeNames are the causes in files.
var causeNames = [NumCauses]string{
	Undecided: "undecided", HeapLeak: "heap-leak", PythonObjects: "python-objects",
	Tensors: "tensors", Fragmentation: "fragmentation", MmapGrowth: "mmap-growth",
	SharedMemory: "shared-memory", CopyOnWrite: "copy-on-write", PageCache: "page-cache", Pinned: "pinned",
	OlderMemory: "older-memory",
}

func (c Cause) String() string { return causeNames[c] }

// IsOfObjects reports whether a cause is objects that are kept.
func (c Cause) IsOfObjects() bool { return c == HeapLeak || c == PythonObjects || c == Tensors }

// MarshalText returns the name of the cause.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a cause. An unknown name reads as Undecided.
func (c *Cause) UnmarshalText(name []byte) error {
	*c = Cause(max(0, slices.Index(causeNames[:], string(name))))
	return nil
}

// Confidence in a diagnosis.
type Confidence string

// The degrees of confidence, the lowest first.
const (
	Low    Confidence = "low"
	Medium Confidence = "medium"
	High   Confidence = "high"
)

// A Diagnosis is one part of the growth of resident memory.
type Diagnosis struct {
	Cause Cause
	// Bytes of growth over the window. Only Undecided can have negative bytes. Error is half the
	// width of their 95% confidence interval; 0: they are exact.
	Bytes int64
	Error float64
	// Rate in bytes per second. Share of the growth of RSS, 1 being all.
	Rate, Share float64
	// Confidence is empty for Undecided.
	Confidence Confidence
	// Free is the resident free memory at the last walk of malloc's heaps (growth.HeapWalk), in
	// bytes;
	// 0: the cause was found without walks.
	Free int64
}

// Evidence is the known data on the growth of one process, or of the process tree.
type Evidence struct {
	// PID of the process; 0: the tree.
	PID int
	// Class of the verdict on the resident memory. HasEnded: it grew, and no longer does.
	Class    verdict.Class
	HasEnded bool
	// Rows of breakdown.RSS over the window. Rows of other processes are ignored.
	Rows []breakdown.Row
	// Start of the window, since the start of the trace, and its length.
	Start, Elapsed time.Duration
	// Trends of the stacks over the window.
	Trends []trend.StackTrend
	// Missing are the data that were lost, or left out on purpose, over the window: claim.Missing.
	Missing growth.Losses
	// Freed are the bytes that traced stacks of the heap have freed over the window; nil: they are
	// not known.
	Freed *float64
	// Walks of malloc's heaps up to the end of the window, in order.
	Walks []growth.HeapWalk
	// Storages of tensors on the CPU, as they grew between two censuses; the zero value: not known.
	Storages   Storages
	Components *component.Rules
}

// Storages of tensors have grown by Bytes between two moments since the start of the trace. Margin
// are the bytes that come and go with each step.
type Storages struct {
	Bytes, Margin float64
	From, To      time.Duration
}

const (
	// minShare of the growth that is a diagnosis. Less is undecided.
	minShare = 0.02
	// maxUnexplained is the share of the growth by which the rows may fail to add up to it.
	maxUnexplained = 0.1
	// minWalkedShare of the window must lie between the first and the last walk. With
	// confidentWalkedShare the confidence is high, unless the first lies before the window.
	minWalkedShare, confidentWalkedShare = 0.25, 0.5
	// mediumError and lowError of the bytes limit the confidence.
	mediumError, lowError = 0.25, 0.5
)

// Diagnose divides the growth of RSS among its causes. The parts sum to it, exactly; Undecided is
// the last one. It returns nil where nothing grows.
func Diagnose(e Evidence) []Diagnosis {
	s := e.sums()
	if s.rss <= 0 || !e.Class.Rises() && !e.HasEnded {
		return nil
	}

	var all []Diagnosis
	rest := s.rss
	for _, p := range s.parts(&e) {
		bytes := int64(math.Round(p.bytes))
		if bytes <= 0 || p.bytes <= p.err || p.bytes < minShare*float64(s.rss) {
			continue
		}
		rest -= bytes
		all = append(all, Diagnosis{
			Cause: p.cause, Bytes: bytes, Error: p.err, Free: p.free,
			Confidence: p.confidenceBy(e.HasEnded || e.Class == verdict.ClassSaturating),
		})
	}

	slices.SortStableFunc(all, func(a, b Diagnosis) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if rest != 0 {
		all = append(all, Diagnosis{Cause: Undecided, Bytes: rest})
	}
	for i := range all {
		d := &all[i]
		d.Share = float64(d.Bytes) / float64(s.rss)
		if e.Elapsed > 0 {
			d.Rate = float64(d.Bytes) / e.Elapsed.Seconds()
		}
	}

	return all
}

// MainOf returns the diagnosis that is most of the growth, and at least half of it. It returns
// false if there is none, or its confidence is low.
func MainOf(all []Diagnosis) (Diagnosis, bool) {
	for _, d := range all {
		if d.Cause != Undecided && d.Share >= 0.5 {
			return d, d.Confidence != Low
		}
	}
	return Diagnosis{}, false
}

// KeptShare is the share of the growth that is objects which are kept.
func KeptShare(all []Diagnosis) (share float64) {
	for _, d := range all {
		if d.Cause.IsOfObjects() {
			share += d.Share
		}
	}
	return share
}

// A part of the growth, in bytes.
type part struct {
	cause      Cause
	bytes, err float64
	free       int64 // by walks
	// most is the highest confidence that its evidence allows.
	most Confidence
}

// confidenceBy lowers the confidence where the error is large, and where the growth slows down or has
// ended: it may be over before anybody needs a cause.
func (p *part) confidenceBy(slowsDown bool) Confidence {
	degrees := []Confidence{Low, Medium, High}
	degree := slices.Index(degrees, p.most)
	switch {
	case p.err > lowError*p.bytes:
		degree = 0
	case p.err > mediumError*p.bytes:
		degree = min(degree, 1)
	}
	if slowsDown {
		degree = max(0, degree-1)
	}
	return degrees[degree]
}
