package summary

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// A Device is the memory of one traced process on its GPUs together: the verdict on it, what speaks for it, and a ledger.
type GPUMemory struct {
	Process int    `json:"process"`
	Command string `json:"command,omitempty"`
	// Verdict on the curve that is named in Judged; of several curves that grow, of the one whose growth weighs most.
	Verdict
	// BoundaryS is the moment from where on growth is counted here.
	BaselineS float64 `json:"baseline_s"`
	// Judged is one of the constants Device….
	Judged string `json:"judged"`
	// Diagnosis is one of growth.Diagnosis…, and Advice says in a sentence what it means.
	Diagnosis string `json:"diagnosis"`
	Advice    string `json:"advice"`
	// Curves at the boundary and the end: of each only what is known.
	Curves []GPUCurve `json:"curves"`
	// RoomBytes is what the GPU that has least has left; absent where NVML does not tell.
	HeadroomBytes *int64 `json:"headroom_bytes,omitempty"`
	// Reason why what the driver counts is not known; absent if it is.
	Reason string `json:"reason,omitempty"`
	// Ledger accounts for what the driver counts, or for what is known where it does not tell: its rows sum to it at both moments.
	Breakdown []GPUBreakdownRow `json:"breakdown"`
	// Culprits are the code that accumulates on the GPU, and Accumulating the stacks that hold more at the end than at the boundary.
	Suspects     []Suspect      `json:"suspects"`
	Accumulating []Accumulation `json:"accumulating"`
}

// Curves of device memory.
const (
	GPUUsed      = string(growth.CurveUsed)      // what the driver counts for the process (NVML)
	GPUReserved  = string(growth.CurveReserved)  // segments of torch's caching allocator
	GPUAllocated = string(growth.CurveAllocated) // its blocks
	GPUDriver    = string(growth.CurveDriver)    // what was allocated through the driver's API since the attach, by anybody
)

// A DeviceCurve is one measure of device memory at the boundary and the end, with a verdict of its own.
type GPUCurve struct {
	// Name is one of the constants Device….
	Name       string       `json:"name"`
	StartBytes *int64       `json:"start_bytes,omitempty"`
	EndBytes   *int64       `json:"end_bytes,omitempty"`
	Class      growth.Class `json:"verdict"`
	// BytesPerMin of its last regime; absent where it is not known.
	BytesPerMin *int64 `json:"bytes_per_min,omitempty"`
}

// A DeviceRow is one row of the ledger of device memory, in bytes at the boundary and the end.
type GPUBreakdownRow struct {
	Kind growth.Kind `json:"kind"`
	// GPU as CUDA counts in the process; absent: not known which, or all.
	GPU string `json:"gpu,omitempty"`
	// Function and Owner are absent in rows that no stack holds.
	Function   string `json:"function,omitempty"`
	Component  string `json:"component,omitempty"`
	StartBytes int64  `json:"start_bytes"`
	EndBytes   int64  `json:"end_bytes"`
}

// A GPU is one GPU of the machine, or one instance of a GPU that is partitioned. Rows of gpus.csv have its Index and Instance.
type GPU struct {
	Index int `json:"index"`
	// Instance on the GPU; absent: it is the whole one.
	Instance *int   `json:"instance,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Name     string `json:"name,omitempty"`
	// UsedBytes by all processes at the end, and TotalBytes; absent where NVML does not tell.
	UsedBytes  *int64 `json:"used_bytes,omitempty"`
	TotalBytes *int64 `json:"total_bytes,omitempty"`
}

// GPUsOf are GPUs in the form of the summary, as they were seen last.
func GPUsOf(samples []growth.GPUSample) []GPU {
	gpus := []GPU{}
	for _, s := range samples {
		g := GPU{Index: s.Index, UUID: units.Printable(s.UUID), Name: units.Printable(s.Name), UsedBytes: Known(s.Used), TotalBytes: Known(s.Total)}
		if s.Instance >= 0 {
			g.Instance = &s.Instance
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// listedDevices are devices without a list that JSON would write as null.
func withLists(devices []GPUMemory) []GPUMemory {
	out := make([]GPUMemory, len(devices))
	for i, d := range devices {
		d.Phases, d.Curves, d.Breakdown = list(d.Phases), list(d.Curves), list(d.Breakdown)
		d.Suspects, d.Accumulating = list(d.Suspects), list(d.Accumulating)
		out[i] = d
	}
	return out
}

// A DeviceCase is what a Device of the summary is made of: a process, its judgement, and the snapshots at the boundary and the end of
// that, with the process alone, as growth.Snapshot.Of gives them.
type GPUInput struct {
	Track      *growth.Track
	Judgement  growth.DeviceJudgement
	Start, End *growth.Snapshot
	// Snapshots of the trace, in order.
	Snapshots []*growth.Snapshot
	// Room as growth.Case.DeviceRoom.
	Headroom   int64
	Components *growth.Owners
	// Rows of each kind, culprits and stacks to keep, at most.
	Rows, Suspects, Stacks int
}

// DeviceOf is the device memory of a process in the form of the summary.
func GPUMemoryOf(c GPUInput) GPUMemory {
	j := c.Judgement
	d := GPUMemory{
		Process: c.Track.PID, Command: c.Track.Command, Verdict: VerdictOf(j.Verdict, AxisSeconds), BaselineS: Seconds(c.Start.Elapsed), Judged: string(j.Judged),
		Diagnosis: string(j.Diagnosis), Advice: units.Printable(j.Advice()), Curves: c.curves(), HeadroomBytes: Known(c.Headroom),
		Breakdown: GPUBreakdownOf(growth.DeviceLedger(c.Start, c.End), c.Components, c.Rows), Suspects: []Suspect{},
	}
	for _, state := range c.End.Devices {
		d.Reason = units.Printable(state.Reason)
	}
	for _, culprit := range j.Culprits[:min(c.Suspects, len(j.Culprits))] {
		d.Suspects = append(d.Suspects, SuspectOf(culprit))
	}
	d.Accumulating = Accumulating(c.Grown(), c.period(), c.Stacks)
	return d
}

// Grown is what accumulated on GPUs between the boundary and the end in the kind of memory that was judged, with its trends.
func (c GPUInput) Grown() []growth.Holding {
	grown := growth.Between(c.Start.OnDevices(c.Judgement.Kind), c.End.OnDevices(c.Judgement.Kind))
	growth.Label(grown, c.Judgement.Trends)
	return grown
}

func (c GPUInput) period() Period {
	course := Period{Elapsed: c.End.Elapsed - c.Start.Elapsed, End: c.End.OnDevices(), Components: c.Components}
	for _, s := range c.Snapshots {
		course.Snapshots = append(course.Snapshots, s.OnDevices())
	}
	return course
}

func (c GPUInput) curves() []GPUCurve {
	curves := []GPUCurve{}
	for i := range c.Judgement.Curves {
		curve := &c.Judgement.Curves[i]
		start, end := curve.At(c.Start.Elapsed.Seconds()), curve.At(c.End.Elapsed.Seconds())
		out := GPUCurve{Name: string(curve.Name), StartBytes: &start, EndBytes: &end, Class: curve.Class}
		if !math.IsNaN(curve.Rate) {
			out.BytesPerMin = BytesPerMin(units.Round(curve.Rate*60), time.Minute)
		}
		curves = append(curves, out)
	}
	return curves
}

// DeviceLedgerOf names the rows of growth.DeviceLedger, which are of one process, and sums those that read alike on one GPU. Of each kind
// no more than limit rows are kept, as LedgerOf does; the others are one more, which names no owner. The result is sorted by the
// largest change, then the largest EndBytes.
func GPUBreakdownOf(rows []growth.DeviceLedgerRow, owners *growth.Owners, limit int) []GPUBreakdownRow {
	type look struct {
		kind                 growth.Kind
		gpu, function, owner string
	}
	at := make(map[look]int)
	var kinds []growth.Kind
	ofKind := make(map[growth.Kind][]GPUBreakdownRow)
	for _, r := range rows {
		key := look{kind: r.Kind, gpu: r.GPU}
		if r.Stack.Root == "" {
			key.function, key.owner = units.Printable(PlaceText(r.Stack)), owners.Of(r.Stack)
		}
		i, ok := at[key]
		if !ok {
			i = len(ofKind[r.Kind])
			at[key] = i
			if i == 0 {
				kinds = append(kinds, r.Kind)
			}
			ofKind[r.Kind] = append(ofKind[r.Kind], GPUBreakdownRow{Kind: r.Kind, GPU: r.GPU, Function: key.function, Component: key.owner})
		}
		ofKind[r.Kind][i].StartBytes += r.Start
		ofKind[r.Kind][i].EndBytes += r.End
	}
	ledger := []GPUBreakdownRow{}
	for _, kind := range kinds {
		ledger = append(ledger, limitGPURows(ofKind[kind], limit)...)
	}
	slices.SortStableFunc(ledger, byGPUChange)
	return ledger
}

// DeltaBytes is the change.
func (r *GPUBreakdownRow) DeltaBytes() int64 { return r.EndBytes - r.StartBytes }

func byGPUChange(a, b GPUBreakdownRow) int {
	return cmp.Or(cmp.Compare(magnitude(b.DeltaBytes()), magnitude(a.DeltaBytes())), byGPUEnd(a, b))
}

func byGPUEnd(a, b GPUBreakdownRow) int {
	return cmp.Or(cmp.Compare(b.EndBytes, a.EndBytes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Function, b.Function))
}

// shortenedOnDevice makes one row of those that are too many: half of those that are kept changed most, half hold most at the end.
func limitGPURows(rows []GPUBreakdownRow, limit int) []GPUBreakdownRow {
	if len(rows) <= limit {
		return rows
	}
	changed := (limit + 1) / 2
	slices.SortFunc(rows, byGPUChange)
	slices.SortFunc(rows[changed:], byGPUEnd)
	rest := GPUBreakdownRow{Kind: rows[0].Kind, Function: "other stacks"}
	for _, r := range rows[limit:] {
		rest.StartBytes += r.StartBytes
		rest.EndBytes += r.EndBytes
	}
	return append(rows[:limit:limit], rest)
}
