package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// AtDeviceLimit is what happens at the limit of device memory: of several GPUs, that of the one that has least left.
const AtGPULimit = "the GPU is full"

// DeviceLines says a verdict on device memory to people: its headline, what follows from it, the curves, what they mean, and why
// the driver's count is not known, if it is not.
func GPULines(d summary.GPUMemory) []string {
	lines := VerdictLines(d.Verdict, AtGPULimit)
	lines[0] = GPUHeadline(d)
	if curves := gpuCurves(d); curves != "" {
		lines = append(lines, curves)
	}
	lines = append(lines, d.Advice)
	if d.Reason != "" {
		lines = append(lines, "what the driver counts is not known: "+d.Reason)
	}
	return lines
}

// DeviceHeadline is the verdict in a sentence, and the curve that it is on.
func GPUHeadline(d summary.GPUMemory) string {
	on := CurveText(d.Judged)
	if d.Judged == summary.GPUAllocated { // within a step they come and go
		on += ", between steps"
	}
	return Headline(d.Verdict) + " (" + on + ")"
}

// curveTexts are the curves of device memory in words for people.
var curveTexts = map[string]string{
	summary.GPUUsed:      "as the driver counts",
	summary.GPUReserved:  "reserved by torch",
	summary.GPUAllocated: "allocated by torch",
	summary.GPUDriver:    "through the driver's API",
}

// CurveText is a curve of device memory in words, by one of the constants export.Device….
func CurveText(name string) string { return cmp.Or(curveTexts[name], name) }

// deviceCurves is one line about all curves: "used 12.0 GiB → 13.0 GiB (+1.00 GiB/min, leak)".
func gpuCurves(d summary.GPUMemory) string {
	var texts []string
	for _, c := range d.Curves {
		if c.StartBytes == nil || c.EndBytes == nil {
			continue
		}
		text := fmt.Sprintf("%s %s → %s (", c.Name, units.Bytes(float64(*c.StartBytes)), units.Bytes(float64(*c.EndBytes)))
		if c.BytesPerMin != nil {
			text += units.Signed(float64(*c.BytesPerMin)) + "/min, "
		}
		texts = append(texts, text+strings.ReplaceAll(string(c.Class), "-", " ")+")")
	}
	return strings.Join(texts, ", ")
}

// deviceKindTexts are the kinds of a ledger of device memory in words for people.
var gpuKindTexts = map[growth.Kind]string{
	growth.KindCudaBlock:     "torch's blocks",
	growth.KindCudaBefore:    "torch's blocks from before the attach",
	growth.KindCudaCached:    "cached by torch, in no block",
	growth.KindCudaSegment:   "other allocations by the driver",
	growth.KindNotAttributed: "not attributed: context, modules, and what was not seen",
}

// A DeviceSum is what a process holds on a GPU in one kind of memory, in bytes.
type GPUSum struct {
	Kind growth.Kind
	// GPU as CUDA counts in the process; empty: not known which, or all.
	GPU        string
	Start, End float64
}

// Delta is the change from the boundary to the end.
func (s GPUSum) Delta() float64 { return s.End - s.Start }

// What it is, in words for people.
func (s GPUSum) Label() string {
	text := cmp.Or(gpuKindTexts[s.Kind], string(s.Kind))
	if s.GPU != "" {
		text += ", GPU " + s.GPU
	}
	return text
}

// DeviceSums are the ledger of device memory by kind, and by GPU where it knows several: the largest change first, what is not
// attributed last. all is the sum of them.
func GPUSums(d summary.GPUMemory) (sums []GPUSum, all GPUSum) {
	several := hasSeveralGPUs(d)
	for _, r := range d.Breakdown {
		if !several {
			r.GPU = ""
		}
		i := slices.IndexFunc(sums, func(s GPUSum) bool { return s.Kind == r.Kind && s.GPU == r.GPU })
		if i < 0 {
			i = len(sums)
			sums = append(sums, GPUSum{Kind: r.Kind, GPU: r.GPU})
		}
		for _, s := range []*GPUSum{&sums[i], &all} {
			s.Start += float64(r.StartBytes)
			s.End += float64(r.EndBytes)
		}
	}
	slices.SortStableFunc(sums, func(a, b GPUSum) int {
		return cmp.Or(isRemainder(a)-isRemainder(b), cmp.Compare(math.Abs(b.Delta()), math.Abs(a.Delta())), cmp.Compare(b.End, a.End))
	})
	return sums, all
}

func isRemainder(s GPUSum) int {
	if s.Kind == growth.KindNotAttributed {
		return 1
	}
	return 0
}

func hasSeveralGPUs(d summary.GPUMemory) bool {
	gpu := ""
	for _, r := range d.Breakdown {
		if r.GPU != "" && gpu != "" && r.GPU != gpu {
			return true
		}
		gpu = cmp.Or(r.GPU, gpu)
	}
	return false
}

// DeviceWhole is what the ledger of device memory sums to.
func GPUTotalLabel(d summary.GPUMemory) string {
	if slices.ContainsFunc(d.Curves, func(c summary.GPUCurve) bool { return c.Name == summary.GPUUsed }) {
		return "used, as the driver counts"
	}
	return "all that is known"
}

// DeviceRow says what a row of the ledger of device memory holds: "torch's blocks: forward (model.py:31), GPU 0". The GPU is named
// where there are several.
func GPURow(row summary.GPUBreakdownRow, several bool) string {
	text := cmp.Or(gpuKindTexts[row.Kind], string(row.Kind))
	switch {
	case row.Function != "":
		text += ": " + Frame(row.Function)
	case row.Kind == growth.KindCudaBlock || row.Kind == growth.KindCudaSegment:
		text += ", holder not known"
	}
	if several && row.GPU != "" {
		text = fmt.Sprintf("%s, GPU %s", text, row.GPU)
	}
	return text
}
