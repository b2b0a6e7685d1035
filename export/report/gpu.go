package report

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// A gpuView is the section about the GPU memory of a process.
type gpuView struct {
	// ID of the section: "gpu", "gpu-2", ….
	ID, Title string
	Verdict   verdictView
	Facts     []fact
	Suspects  []suspectView
	// Advice explains the diagnosis. Reason is why NVML's count is unknown; empty: it is known.
	Advice, Reason string
	Curves         []curveView
	Pools          []poolView
	Pinners        []string // blocks that keep free memory, and the allocator's counts
	Breakdown      breakdownView
	Rows           []rowView
	RowsNote       string
}

// A curveView is a row of the table of curves. Judged: the verdict is on this one.
type curveView struct {
	Name, Start, End, Change, Rate, Verdict string
	Judged                                  bool
}

// gpuViewsOf returns the sections about GPU memory. The title names the process if it is not the
// main process, or there are several.
func gpuViewsOf(s *summary.Summary) []gpuView {
	var views []gpuView
	for i := range s.GPUMemory {
		d := &s.GPUMemory[i]
		v := gpuView{
			ID: "gpu", Title: "GPU memory", Verdict: verdictOf(d.Verdict),
			Facts: gpuFacts(s, d), Suspects: suspectsOf(d.Suspects, nil),
			Advice: words.GPUAdvice(d), Reason: words.GPUCountUnknown(*d), Curves: curveViews(d),
			Pools: poolViews(d.Cache), Pinners: words.GPUCacheFacts(d.Cache),
			Breakdown: gpuBreakdownOf(d, s.BaselineS),
			Rows:      rowsOf(d.Accumulating, s.SnapshotsS), RowsNote: words.GPURowsNote(*d),
		}

		if i > 0 {
			v.ID = fmt.Sprintf("gpu-%d", i+1)
		}

		if len(s.GPUMemory) > 1 || d.Process != s.Process.PID {
			v.Title += " of " + strings.TrimSpace(d.Command+" ("+pidText(d.Process)+")")
		}

		views = append(views, v)
	}

	return views
}

// gpuFacts are the numbers that people look for first.
func gpuFacts(s *summary.Summary, d *summary.GPUMemory) []fact {
	facts := verdictFacts(d.Verdict, "Out of GPU memory", nil)
	if d.HeadroomBytes != nil {
		facts = append(facts, fact{
			"Headroom", units.Bytes(float64(*d.HeadroomBytes)), "on the GPU with the least",
		})
	}

	for _, c := range d.Curves {
		if c.Name != d.Judged {
			continue
		}

		if c.StartBytes != nil {
			facts = append(facts, fact{
				"At the baseline", units.Bytes(float64(*c.StartBytes)),
				strings.TrimSpace(words.CurveText(c.Name) + secondsNote(", after ", s.BaselineS)),
			})
		}

		if c.EndBytes != nil {
			facts = append(facts, fact{
				"At the end", units.Bytes(float64(*c.EndBytes)), words.CurveText(c.Name),
			})
		}
	}

	return facts
}

// curveViews is the table of curves.
func curveViews(d *summary.GPUMemory) []curveView {
	var views []curveView
	for _, c := range d.Curves {
		v := curveView{
			Name: words.CurveText(c.Name), Start: sizeText(c.StartBytes), End: sizeText(c.EndBytes),
			Change: "-", Rate: "-",
			Verdict: words.ClassText(c.Class), Judged: c.Name == d.Judged,
		}

		if c.StartBytes != nil && c.EndBytes != nil {
			v.Change = units.Signed(float64(*c.EndBytes) - float64(*c.StartBytes))
		}

		if c.BytesPerMin != nil {
			v.Rate = units.Signed(float64(*c.BytesPerMin)) + "/min"
		}

		views = append(views, v)
	}

	return views
}

// A poolView is a row of the table of PyTorch's pools of GPU memory.
type poolView struct {
	Name, Segments, Reserved, Allocated, Rounding, Pinned, Returnable, Largest string
}

// poolViews is the table of pools; nil: they are not known.
func poolViews(c *summary.GPUCache) []poolView {
	if c == nil {
		return nil
	}
	size := func(bytes int64) string { return units.Bytes(float64(bytes)) }
	var views []poolView
	for i := range c.Pools {
		p := &c.Pools[i]
		views = append(views, poolView{
			Name: words.GPUPool(p), Segments: units.Count(float64(p.Segments)),
			Reserved: size(p.ReservedBytes), Allocated: size(p.AllocatedBytes),
			Rounding: size(p.RoundingBytes), Pinned: size(p.PinnedBytes + p.PendingBytes),
			Returnable: size(p.ReturnableBytes), Largest: size(p.LargestFreeBytes),
		})
	}
	return views
}
