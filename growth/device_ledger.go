package growth

import (
	"cmp"
	"slices"
)

// A DeviceLedgerRow is the device memory of one stack in one kind, on one GPU, at two moments, in bytes.
type DeviceLedgerRow struct {
	PID  int
	Kind Kind
	// GPU as that of a Holding.
	GPU   string
	Stack *Stack
	// Start and End are the DeviceBytes.
	Start, End int64
}

// Delta is the change, in bytes.
func (r *DeviceLedgerRow) Delta() int64 { return r.End - r.Start }

// DeviceLedger accounts for the device memory of the processes that use a GPU, at two moments of one trace, which FillDevices has
// filled. For each process the rows sum to what is known of it at either moment. One that is missing at a moment counts 0 there.
//
// Rows that are 0 at both moments are left out. The result is sorted by PID, the largest change first, then the largest End.
func DeviceLedger(start, end *Snapshot) []DeviceLedgerRow {
	var rows []DeviceLedgerRow
	at := make(map[holder]int)
	enter := func(s *Snapshot, side func(*DeviceLedgerRow) *int64) {
		for i := range s.DeviceHoldings {
			h := &s.DeviceHoldings[i]
			key := holderOf(h.Stack, h.Kind, h.GPU)
			row, ok := at[key]
			if !ok {
				row = len(rows)
				at[key] = row
				rows = append(rows, DeviceLedgerRow{PID: h.Stack.PID, Kind: h.Kind, GPU: h.GPU, Stack: h.Stack})
			}
			*side(&rows[row]) += h.DeviceBytes
		}
	}
	enter(start, func(r *DeviceLedgerRow) *int64 { return &r.Start })
	enter(end, func(r *DeviceLedgerRow) *int64 { return &r.End })
	rows = slices.DeleteFunc(rows, func(r DeviceLedgerRow) bool { return r.Start == 0 && r.End == 0 })
	slices.SortStableFunc(rows, func(a, b DeviceLedgerRow) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(absolute(b.Delta()), absolute(a.Delta())), cmp.Compare(b.End, a.End),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Stack.ID, b.Stack.ID))
	})
	return rows
}

// Everything is what is held in the host's memory and on GPUs.
func (s *Snapshot) Everything() []Holding { return slices.Concat(s.Holdings, s.DeviceHoldings) }

// OnDevices is the snapshot with what is held on GPUs in place of what is held in the host's memory, as if that were all: what is said
// of holdings can be asked of these. Only of the kinds that are named; none: of all.
//
// What windows of the heap say does not apply to them: calls of the driver and of torch's allocator are watched all the time.
func (s *Snapshot) OnDevices(kinds ...Kind) *Snapshot {
	own := *s
	own.Watch, own.Residents, own.Others = Watch{}, nil, nil
	own.Holdings, own.DeviceHoldings = s.DeviceHoldings, nil
	if len(kinds) > 0 {
		own.Holdings = slices.DeleteFunc(slices.Clone(s.DeviceHoldings), func(h Holding) bool { return !slices.Contains(kinds, h.Kind) })
	}
	return &own
}
