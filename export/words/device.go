package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// AtDeviceLimit is what happens at the limit of device memory: of several GPUs, that of the one that has least left.
const AtDeviceLimit = "the GPU is full"

// DeviceLines says a verdict on device memory to people: its headline, what follows from it, the curves, what they mean, and why
// the driver's count is not known, if it is not.
func DeviceLines(d export.Device) []string {
	lines := VerdictLines(d.Verdict, AtDeviceLimit)
	lines[0] = DeviceHeadline(d)
	if curves := deviceCurves(d); curves != "" {
		lines = append(lines, curves)
	}
	lines = append(lines, d.Advice)
	if d.Reason != "" {
		lines = append(lines, "what the driver counts is not known: "+d.Reason)
	}
	return lines
}

// DeviceHeadline is the verdict in a sentence, and the curve that it is on.
func DeviceHeadline(d export.Device) string {
	on := CurveText(d.Judged)
	if d.Judged == export.DeviceAllocated { // within a step they come and go
		on += ", between steps"
	}
	return Headline(d.Verdict) + " (" + on + ")"
}

// curveTexts are the curves of device memory in words for people.
var curveTexts = map[string]string{
	export.DeviceUsed:      "as the driver counts",
	export.DeviceReserved:  "reserved by torch",
	export.DeviceAllocated: "allocated by torch",
	export.DeviceDriver:    "through the driver's API",
}

// CurveText is a curve of device memory in words, by one of the constants export.Device….
func CurveText(name string) string { return cmp.Or(curveTexts[name], name) }

// deviceCurves is one line about all curves: "used 12.0 GiB → 13.0 GiB (+1.00 GiB/min, leak)".
func deviceCurves(d export.Device) string {
	var texts []string
	for _, c := range d.Curves {
		if c.StartBytes == nil || c.EndBytes == nil {
			continue
		}
		text := fmt.Sprintf("%s %s → %s (", c.Name, Bytes(float64(*c.StartBytes)), Bytes(float64(*c.EndBytes)))
		if c.BytesPerMin != nil {
			text += Signed(float64(*c.BytesPerMin)) + "/min, "
		}
		texts = append(texts, text+strings.ReplaceAll(string(c.Class), "-", " ")+")")
	}
	return strings.Join(texts, ", ")
}

// deviceKindTexts are the kinds of a ledger of device memory in words for people.
var deviceKindTexts = map[growth.Kind]string{
	growth.KindCudaBlock:     "torch's blocks",
	growth.KindCudaBefore:    "torch's blocks from before the attach",
	growth.KindCudaCached:    "cached by torch, in no block",
	growth.KindCudaSegment:   "other allocations by the driver",
	growth.KindNotAttributed: "not attributed: context, modules, and what was not seen",
}

// A DeviceSum is what a process holds on a GPU in one kind of memory, in bytes.
type DeviceSum struct {
	Kind growth.Kind
	// GPU as CUDA counts in the process; empty: not known which, or all.
	GPU        string
	Start, End float64
}

// Delta is the change from the boundary to the end.
func (s DeviceSum) Delta() float64 { return s.End - s.Start }

// What it is, in words for people.
func (s DeviceSum) What() string {
	text := cmp.Or(deviceKindTexts[s.Kind], string(s.Kind))
	if s.GPU != "" {
		text += ", GPU " + s.GPU
	}
	return text
}

// DeviceSums are the ledger of device memory by kind, and by GPU where it knows several: the largest change first, what is not
// attributed last. all is the sum of them.
func DeviceSums(d export.Device) (sums []DeviceSum, all DeviceSum) {
	several := hasSeveralGPUs(d)
	for _, r := range d.Ledger {
		if !several {
			r.GPU = ""
		}
		i := slices.IndexFunc(sums, func(s DeviceSum) bool { return s.Kind == r.Kind && s.GPU == r.GPU })
		if i < 0 {
			i = len(sums)
			sums = append(sums, DeviceSum{Kind: r.Kind, GPU: r.GPU})
		}
		for _, s := range []*DeviceSum{&sums[i], &all} {
			s.Start += float64(r.StartBytes)
			s.End += float64(r.EndBytes)
		}
	}
	slices.SortStableFunc(sums, func(a, b DeviceSum) int {
		return cmp.Or(isRemainder(a)-isRemainder(b), cmp.Compare(math.Abs(b.Delta()), math.Abs(a.Delta())), cmp.Compare(b.End, a.End))
	})
	return sums, all
}

func isRemainder(s DeviceSum) int {
	if s.Kind == growth.KindNotAttributed {
		return 1
	}
	return 0
}

func hasSeveralGPUs(d export.Device) bool {
	gpu := ""
	for _, r := range d.Ledger {
		if r.GPU != "" && gpu != "" && r.GPU != gpu {
			return true
		}
		gpu = cmp.Or(r.GPU, gpu)
	}
	return false
}

// DeviceWhole is what the ledger of device memory sums to.
func DeviceWhole(d export.Device) string {
	if slices.ContainsFunc(d.Curves, func(c export.DeviceCurve) bool { return c.Name == export.DeviceUsed }) {
		return "used, as the driver counts"
	}
	return "all that is known"
}
