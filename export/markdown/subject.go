package markdown

import (
	"math"
	"strings"

	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// A subject is the memory that the result is about: the RSS of the process, or its GPU memory.
type subject struct {
	isRSS bool
	// title is the head of the table, and curve the name of the size over time.
	title, curve string
	since        string
	// size is the size in a row of the timeline; nil: the rows are of another process.
	size   func(*growth.Row) int64
	kinds  []words.BreakdownLine
	sum    words.BreakdownLine
	stacks []summary.Accumulation
}

// minUnexplained is the least unexplained memory that has a row, in bytes: the pages of a process
// change while they are scanned.
const minUnexplained = 64 << 10

func subjectOf(s *summary.Summary) subject {
	if g := s.GPUInCharge(); g != nil {
		return gpuSubject(s, g)
	}

	a := subject{
		isRSS: true, title: "what RSS is made of", curve: "RSS",
		since: words.SinceBaseline(s.BaselineS), stacks: s.Accumulating,
		size: func(r *growth.Row) int64 { return r.RSS },
	}
	own := words.BreakdownOf(s.Breakdown, s.Process.PID)
	if len(own.Kinds) > 0 {
		a.kinds = own.Lines(maxKinds, s.MainResident())
	}
	if u := own.Unexplained; max(math.Abs(u.Delta), math.Abs(u.End)) < minUnexplained {
		a.kinds = a.kinds[:max(0, len(a.kinds)-1)]
	}
	a.sum = words.BreakdownLine{Label: "RSS, as the kernel counts", KindSum: own.Sum()}
	return a
}

func gpuSubject(s *summary.Summary, g *summary.GPUMemory) subject {
	a := subject{
		title: "what GPU memory is made of", curve: "GPU memory (" + words.CurveText(g.Judged) + ")",
		since: words.SinceBaseline(&g.BaselineS), stacks: g.Accumulating,
	}
	if g.Process == s.Process.PID {
		a.size = gpuSizes[g.Judged]
	}

	sums, all := words.GPUSums(*g)
	others := words.BreakdownLine{}

	for i, sum := range sums {
		line := words.BreakdownLine{
			Label: sum.Label(), KindSum: words.KindSum{Delta: sum.Delta(), End: sum.End},
		}
		if i < maxKinds+1 || len(sums) == maxKinds+2 {
			a.kinds = append(a.kinds, line)
			continue
		}
		others.Delta += line.Delta
		others.End += line.End
	}

	if n := len(sums) - len(a.kinds); n > 0 {
		others.Label = units.Plural(n, "other kind", "other kinds")
		a.kinds = append(a.kinds, others)
	}
	a.sum = words.BreakdownLine{
		Label: words.GPUTotalLabel(*g), KindSum: words.KindSum{Delta: all.Delta(), End: all.End},
	}
	return a
}

// gpuSizes are the sizes in a row of the timeline, by the curves that a verdict may be about.
var gpuSizes = map[string]func(*growth.Row) int64{
	summary.GPUUsed:      func(r *growth.Row) int64 { return r.GPUUsed },
	summary.GPUReserved:  func(r *growth.Row) int64 { return r.CudaReserved },
	summary.GPUAllocated: func(r *growth.Row) int64 { return r.CudaAllocated },
	summary.GPUDriver:    func(r *growth.Row) int64 { return r.CudaDriver },
}

// The picture has so many columns and lines. maxSize is the largest size that it draws, in bytes.
const (
	pictureColumns, pictureLines = 60, 2
	maxPictureRows               = 4096
	maxSize                      = 1 << 53
)

// picture draws the size over time, with its bounds at the right; nil where it is not known.
func picture(a subject, rows []growth.Row) []string {
	if a.size == nil || len(rows) == 0 {
		return nil
	}

	var curve chart.Curve
	first, last := int64(growth.Unknown), int64(growth.Unknown)
	step := len(rows)/maxPictureRows + 1
	for at := 0; at < len(rows); at += step {
		most := int64(growth.Unknown)
		for i := range rows[at:min(at+step, len(rows))] {
			size := min(a.size(&rows[at+i]), maxSize)
			if size < 0 {
				continue
			}
			if first < 0 {
				first = size
			}
			last, most = size, max(most, size)
		}
		if most >= 0 {
			curve = curve.With(rows[at].Elapsed, most)
		}
	}

	end := rows[len(rows)-1].Elapsed
	if len(curve.Points) == 0 || end <= 0 {
		return nil
	}

	scale := chart.ScaleOf(curve)
	lines := chart.Draw(curve.Columns(pictureColumns, end), scale, pictureLines)
	lines[0] += "  " + units.Bytes(float64(scale.High))
	lines[pictureLines-1] += "  " + units.Bytes(float64(scale.Low))
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return append(lines, words.CurveLine(a.curve, first, last, curve.Max, end.Seconds()))
}
