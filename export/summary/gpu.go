package summary

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A GPUMemory is the memory of one traced process on all its GPUs: the verdict, its evidence, and a
// breakdown.
type GPUMemory struct {
	Process int    `json:"pid"`
	Command string `json:"command,omitempty"`
	// Verdict on the curve that is named in Judged. If several curves grow, it is the most severe
	// one.
	Verdict
	// BaselineS is the time from which growth counts here.
	BaselineS float64 `json:"baseline_s"`
	// Judged is one of the constants GPU….
	Judged string `json:"judged"`
	// Diagnosis is one of gpu.Diagnosis….
	Diagnosis string `json:"diagnosis"`
	// Curves at the baseline and the end, those that are known.
	Curves []GPUCurve `json:"curves"`
	// HeadroomBytes is the headroom on the GPU that has least; absent if NVML does not report it.
	HeadroomBytes *int64 `json:"headroom_bytes,omitempty"`
	// GPUUnknown is why the driver's count is unknown; absent: it is known.
	growth.GPUUnknown
	// Breakdown of NVML's count, or of the known memory where NVML does not report it. Its rows sum
	// to the count, at the baseline and the end.
	Breakdown []GPUBreakdownRow `json:"breakdown"`
	// Cache is absent where PyTorch's caching allocator was not read.
	Cache *GPUCache `json:"cache,omitempty"`
	// Suspects are the components that accumulate on the GPU, and Accumulating the stacks that hold
	// more at the end than at the baseline.
	Suspects     []Suspect      `json:"suspects"`
	Accumulating []Accumulation `json:"accumulating"`
}

// GPUSnapshot is the name in Summary.Files of the memory of PyTorch's caching allocator. Where several
// processes have one, an underscore and the PID follow.
const GPUSnapshot = "gpu_snapshot"

// Curves of GPU memory.
const (
	GPUUsed      = string(gpu.CurveUsed)      // NVML's count
	GPUReserved  = string(gpu.CurveReserved)  // segments of PyTorch's caching allocator
	GPUAllocated = string(gpu.CurveAllocated) // its blocks
	GPUDriver    = string(gpu.CurveDriver)    // CUDA driver API, since tracing started
)

// A GPUCurve is one measure of GPU memory at the baseline and the end, with a verdict of its own.
type GPUCurve struct {
	// Name is one of the constants GPU….
	Name       string        `json:"name"`
	StartBytes *int64        `json:"start_bytes,omitempty"`
	EndBytes   *int64        `json:"end_bytes,omitempty"`
	Class      verdict.Class `json:"verdict"`
	// BytesPerMin of its last segment; absent if unknown.
	BytesPerMin *int64 `json:"bytes_per_min,omitempty"`
}

// A GPUBreakdownRow is one row of a GPU memory breakdown, in bytes at the baseline and the end.
type GPUBreakdownRow struct {
	Kind growth.Kind `json:"kind"`
	// GPU is the CUDA device index in the process; absent: unknown, or all.
	GPU string `json:"gpu,omitempty"`
	// Function and Component are absent in rows without a stack.
	Function   string `json:"function,omitempty"`
	Component  string `json:"component,omitempty"`
	StartBytes int64  `json:"start_bytes"`
	EndBytes   int64  `json:"end_bytes"`
}

// A GPU is one GPU of the machine, or one instance of a partitioned GPU. The rows of gpus.csv have
// its Index and Instance.
type GPU struct {
	Index int `json:"index"`
	// Instance on the GPU; absent: it is a whole GPU.
	Instance *int   `json:"instance,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Name     string `json:"name,omitempty"`
	// UsedBytes by all processes at the end, and TotalBytes; absent if NVML does not report it.
	UsedBytes  *int64 `json:"used_bytes,omitempty"`
	TotalBytes *int64 `json:"total_bytes,omitempty"`
}

// GPUsOf converts the last samples of the GPUs.
func GPUsOf(samples []growth.GPUSample) []GPU {
	gpus := []GPU{}
	for _, s := range samples {
		g := GPU{
			Index: s.Index, UUID: units.Name(s.UUID), Name: units.Name(s.Name),
			UsedBytes: Known(s.Used), TotalBytes: Known(s.Total),
		}
		if s.Instance >= 0 {
			g.Instance = &s.Instance
		}

		gpus = append(gpus, g)
	}

	return gpus
}

// withLists replaces lists that JSON would write as null.
func withLists(devices []GPUMemory) []GPUMemory {
	out := make([]GPUMemory, len(devices))
	for i, d := range devices {
		d.Phases, d.Curves, d.Breakdown = list(d.Phases), list(d.Curves), list(d.Breakdown)
		d.Suspects, d.Accumulating = list(d.Suspects), list(d.Accumulating)
		out[i] = d
	}
	return out
}

// A GPUInput has the data that GPUMemoryOf needs of a process: its judgement, and the snapshots at
// the baseline and the end, of this process alone, as growth.Snapshot.Of returns them.
type GPUInput struct {
	Track      *growth.ProcessHistory
	Judgement  gpu.Judgement
	Start, End *growth.Snapshot
	// Snapshots of the trace, in order.
	Snapshots []*growth.Snapshot
	// Headroom as judge.Case.GPUHeadroom.
	Headroom   int64
	Components *component.Rules
	// Rows of each kind, Suspects and Stacks are limits.
	Rows, Suspects, Stacks int
}

// GPUMemoryOf describes the GPU memory of a process.
func GPUMemoryOf(c GPUInput) GPUMemory {
	d := GPUJudged(&c.Judgement, c.Suspects)
	d.Process, d.Command = c.Track.PID, c.Track.Command
	d.BaselineS, d.HeadroomBytes = Seconds(c.Start.Elapsed), Known(c.Headroom)
	d.Breakdown = GPUBreakdownOf(breakdown.GPU(c.Start, c.End), c.Components, c.Rows)
	for i := range d.Curves {
		curve := &c.Judgement.Curves[i]
		d.Curves[i].StartBytes = new(curve.At(c.Start.Elapsed.Seconds()))
		d.Curves[i].EndBytes = new(curve.At(c.End.Elapsed.Seconds()))
	}

	for _, state := range c.End.GPUMemory {
		d.GPUUnknown = state.GPUUnknown
	}

	d.Cache = gpuCacheOf(&c.Judgement, c.Components)
	d.Accumulating = Accumulating(c.Grown(), c.period(), c.Stacks)
	return d
}

// Grown is the memory that accumulated on GPUs between the baseline and the end, in the kind of
// memory that was judged, with its trends.
func (c GPUInput) Grown() []growth.Holding {
	grown := growth.Between(c.Start.OnGPUs(c.Judgement.Kind), c.End.OnGPUs(c.Judgement.Kind))
	trend.Label(grown, c.Judgement.Trends)
	return grown
}

func (c GPUInput) period() Period {
	period := Period{
		Elapsed: c.End.Elapsed - c.Start.Elapsed, End: c.End.OnGPUs(), Components: c.Components,
	}
	for _, s := range c.Snapshots {
		period.Snapshots = append(period.Snapshots, s.OnGPUs())
	}
	return period
}

// GPUJudged is a judgement alone: the verdict, the diagnosis, the curves, and so many suspects.
func GPUJudged(j *gpu.Judgement, suspects int) GPUMemory {
	d := GPUMemory{
		Verdict: VerdictOf(j.Verdict, AxisSeconds), Judged: string(j.Judged),
		Diagnosis: string(j.Diagnosis), Curves: []GPUCurve{}, Suspects: []Suspect{},
	}
	for _, curve := range j.Curves {
		out := GPUCurve{Name: string(curve.Name), Class: curve.Class}
		if !math.IsNaN(curve.Rate) {
			out.BytesPerMin = BytesPerMin(units.Round(curve.Rate*60), time.Minute)
		}
		d.Curves = append(d.Curves, out)
	}
	for _, suspect := range j.Suspects[:min(suspects, len(j.Suspects))] {
		d.Suspects = append(d.Suspects, SuspectOf(suspect))
	}
	return d
}

// GPUBreakdownOf names the rows of breakdown.GPU, which are of one process, and sums those
// that have the same name on the same GPU. It limits the rows of each kind as BreakdownOf does; the
// row of the others has no component. The largest change comes first, then the largest EndBytes.
func GPUBreakdownOf(rows []breakdown.Row, components *component.Rules,
	limit int,
) []GPUBreakdownRow {
	type rowKey struct {
		kind                     growth.Kind
		gpu, function, component string
	}
	at := make(map[rowKey]int)

	var kinds []growth.Kind
	ofKind := make(map[growth.Kind][]GPUBreakdownRow)
	for _, r := range rows {
		key := rowKey{kind: r.Kind, gpu: r.GPU}
		if r.Stack.Root == "" {
			key.function, key.component = units.Name(placeText(r.Stack)), components.Of(r.Stack)
		}

		i, ok := at[key]
		if !ok {
			i = len(ofKind[r.Kind])
			at[key] = i

			if i == 0 {
				kinds = append(kinds, r.Kind)
			}

			ofKind[r.Kind] = append(ofKind[r.Kind], GPUBreakdownRow{
				Kind: r.Kind, GPU: r.GPU, Function: key.function, Component: key.component,
			})
		}

		ofKind[r.Kind][i].StartBytes += r.Start
		ofKind[r.Kind][i].EndBytes += r.End
	}

	breakdown := []GPUBreakdownRow{}
	for _, kind := range kinds {
		breakdown = append(breakdown,
			limitRows(ofKind[kind], limit, otherGPURows)...)
	}

	slices.SortStableFunc(breakdown, byChange)
	return breakdown
}

// DeltaBytes is the change.
func (r GPUBreakdownRow) DeltaBytes() int64 { return r.EndBytes - r.StartBytes }

func (r GPUBreakdownRow) sizes() (delta, end int64) { return r.DeltaBytes(), r.EndBytes }

func (r GPUBreakdownRow) compareName(other GPUBreakdownRow) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.GPU, other.GPU),
		cmp.Compare(r.Function, other.Function))
}

func otherGPURows(rows []GPUBreakdownRow) GPUBreakdownRow {
	sum := GPUBreakdownRow{Kind: rows[0].Kind, Function: "other stacks"}
	for _, r := range rows {
		sum.StartBytes += r.StartBytes
		sum.EndBytes += r.EndBytes
	}
	return sum
}

// GPUInCharge is the GPU memory that the result is about: the worst that grows, where its verdict is
// worse than that on RSS, or as bad and at its limit earlier; nil: the result is about RSS.
func (s *Summary) GPUInCharge() (inCharge *GPUMemory) {
	var headroom *int64
	if s.Limit != nil {
		headroom = &s.Limit.HeadroomBytes
	}

	worst, nearest := &s.Verdict, secondsToLimit(&s.Verdict, headroom)
	for i := range s.GPUMemory {
		g := &s.GPUMemory[i]
		toLimit := secondsToLimit(&g.Verdict, g.HeadroomBytes)
		order := cmp.Or(cmp.Compare(g.Class.Severity(), worst.Class.Severity()),
			cmp.Compare(nearest, toLimit))
		if g.Class.Grows() && order > 0 {
			worst, nearest, inCharge = &g.Verdict, toLimit, g
		}
	}
	return inCharge
}

// secondsToLimit is the time to the limit, or the time that was left when the process has ended.
// It is infinite where no limit is near.
func secondsToLimit(v *Verdict, headroom *int64) float64 {
	switch {
	case v.ToLimit != nil:
		return *v.ToLimit
	case v.EndedBeforeLimit && headroom != nil && v.Rate != nil && *v.Rate > 0:
		return 60 * float64(*headroom) / *v.Rate
	}
	return math.Inf(1)
}
