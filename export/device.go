package export

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A DeviceCase is what a Device of the summary is made of: a process, its judgement, and the snapshots at the boundary and the end of
// that, with the process alone, as growth.Snapshot.Of gives them.
type DeviceCase struct {
	Track      *growth.Track
	Judgement  growth.DeviceJudgement
	Start, End *growth.Snapshot
	// Snapshots of the trace, in order.
	Snapshots []*growth.Snapshot
	// Room as growth.Case.DeviceRoom.
	Room   int64
	Owners *growth.Owners
	// Rows of each kind, culprits and stacks to keep, at most.
	Rows, Culprits, Stacks int
}

// DeviceOf is the device memory of a process in the form of the summary.
func DeviceOf(c DeviceCase) Device {
	j := c.Judgement
	d := Device{
		Process: c.Track.PID, Command: c.Track.Command, Verdict: VerdictOf(j.Verdict, AxisSeconds), BoundaryS: Seconds(c.Start.Elapsed), Judged: string(j.Judged),
		Diagnosis: string(j.Diagnosis), Advice: Printable(j.Advice()), Curves: c.curves(), RoomBytes: Known(c.Room),
		Ledger: DeviceLedgerOf(growth.DeviceLedger(c.Start, c.End), c.Owners, c.Rows), Culprits: []Culprit{},
	}
	for _, state := range c.End.Devices {
		d.Reason = Printable(state.Reason)
	}
	for _, culprit := range j.Culprits[:min(c.Culprits, len(j.Culprits))] {
		d.Culprits = append(d.Culprits, CulpritOf(culprit))
	}
	d.Accumulating = Accumulating(c.Grown(), c.course(), c.Stacks)
	return d
}

// Grown is what accumulated on GPUs between the boundary and the end in the kind of memory that was judged, with its trends.
func (c DeviceCase) Grown() []growth.Holding {
	grown := growth.Between(c.Start.OnDevices(c.Judgement.Kind), c.End.OnDevices(c.Judgement.Kind))
	growth.Label(grown, c.Judgement.Trends)
	return grown
}

func (c DeviceCase) course() Course {
	course := Course{Elapsed: c.End.Elapsed - c.Start.Elapsed, End: c.End.OnDevices(), Owners: c.Owners}
	for _, s := range c.Snapshots {
		course.Snapshots = append(course.Snapshots, s.OnDevices())
	}
	return course
}

func (c DeviceCase) curves() []DeviceCurve {
	curves := []DeviceCurve{}
	for i := range c.Judgement.Curves {
		curve := &c.Judgement.Curves[i]
		start, end := curve.At(c.Start.Elapsed.Seconds()), curve.At(c.End.Elapsed.Seconds())
		out := DeviceCurve{Name: string(curve.Name), StartBytes: &start, EndBytes: &end, Class: curve.Class}
		if !math.IsNaN(curve.Rate) {
			out.BytesPerMin = BytesPerMin(nearest(curve.Rate*60), time.Minute)
		}
		curves = append(curves, out)
	}
	return curves
}

// DeviceLedgerOf names the rows of growth.DeviceLedger, which are of one process, and sums those that read alike on one GPU. Of each kind
// no more than limit rows are kept, as LedgerOf does; the others are one more, which names no owner. The result is sorted by the
// largest change, then the largest EndBytes.
func DeviceLedgerOf(rows []growth.DeviceLedgerRow, owners *growth.Owners, limit int) []DeviceRow {
	type look struct {
		kind                 growth.Kind
		gpu, function, owner string
	}
	at := make(map[look]int)
	var kinds []growth.Kind
	ofKind := make(map[growth.Kind][]DeviceRow)
	for _, r := range rows {
		key := look{kind: r.Kind, gpu: r.GPU}
		if r.Stack.Root == "" {
			key.function, key.owner = Printable(placeText(r.Stack)), owners.Of(r.Stack)
		}
		i, ok := at[key]
		if !ok {
			i = len(ofKind[r.Kind])
			at[key] = i
			if i == 0 {
				kinds = append(kinds, r.Kind)
			}
			ofKind[r.Kind] = append(ofKind[r.Kind], DeviceRow{Kind: r.Kind, GPU: r.GPU, Function: key.function, Owner: key.owner})
		}
		ofKind[r.Kind][i].StartBytes += r.Start
		ofKind[r.Kind][i].EndBytes += r.End
	}
	ledger := []DeviceRow{}
	for _, kind := range kinds {
		ledger = append(ledger, shortenedOnDevice(ofKind[kind], limit)...)
	}
	slices.SortStableFunc(ledger, byDeviceChange)
	return ledger
}

// DeltaBytes is the change.
func (r *DeviceRow) DeltaBytes() int64 { return r.EndBytes - r.StartBytes }

func byDeviceChange(a, b DeviceRow) int {
	return cmp.Or(cmp.Compare(magnitude(b.DeltaBytes()), magnitude(a.DeltaBytes())), byDeviceEnd(a, b))
}

func byDeviceEnd(a, b DeviceRow) int {
	return cmp.Or(cmp.Compare(b.EndBytes, a.EndBytes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Function, b.Function))
}

// shortenedOnDevice makes one row of those that are too many: half of those that are kept changed most, half hold most at the end.
func shortenedOnDevice(rows []DeviceRow, limit int) []DeviceRow {
	if len(rows) <= limit {
		return rows
	}
	changed := (limit + 1) / 2
	slices.SortFunc(rows, byDeviceChange)
	slices.SortFunc(rows[changed:], byDeviceEnd)
	rest := DeviceRow{Kind: rows[0].Kind, Function: "other stacks"}
	for _, r := range rows[limit:] {
		rest.StartBytes += r.StartBytes
		rest.EndBytes += r.EndBytes
	}
	return append(rows[:limit:limit], rest)
}
