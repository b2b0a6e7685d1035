package tracer

import (
	"reflect"
	"unsafe"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	nvml "github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// LookAt is what a snapshot says of a traced process of whose large mappings a share is looked at.
func (s *Session) LookAt(pid int, share float64) (*growth.Snapshot, error) {
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed()}
	now := s.bins(snapshot, nil)
	objects, err := estimate.ReadLive(s.kernel, s.probing.estimator(nil), make(map[stack.Key]*estimate.StackTotals), now, s.objects)
	if err != nil {
		return nil, err
	}
	devices, err := nvml.ReadLive(s.kernel, now)
	if err != nil {
		return nil, err
	}
	faults, err := source.ReadFaults(s.kernel)
	if err != nil {
		return nil, err
	}
	t, held := s.targets.find(uint32(pid)), make(estimate.Holdings)
	maps := t.reconcile(s.events.takeCalls(pid))
	found, err := t.pages.Scan(maps, t.space.Intervals(), share, nil)
	if err != nil {
		return nil, err
	}
	l := residency.NewRows(found, pid, t.stacks.Get, held, make(residency.CountedFiles))
	l.HeapTraced, l.HeapComplete = s.probing.coversHeap(t)
	l.Fill(residency.Samples{Objects: objects[uint32(pid)], Faults: faults[uint32(pid)], Pins: devices.Pins[uint32(pid)]})
	t.addMappings(held, found, &snapshot.Mappings)
	snapshot.Holdings = held.List()
	snapshot.Residents = []growth.Resident{found.Resident(growth.Process{PID: pid})}
	return snapshot, nil
}

// ReadPages has the pages of all processes that are known read as on kernels without PAGEMAP_SCAN.
func (s *Session) ReadPages() {
	for _, t := range s.targets.list() {
		readPages(t.pages.Pagemap)
	}
	for _, o := range s.scanner.others.Members {
		if o.Tracker != nil {
			readPages(o.Tracker.Pagemap)
		}
	}
}

// readPages makes the page map forget that the kernel can scan.
func readPages(pages *process.Pagemap) {
	field := reflect.ValueOf(pages).Elem().FieldByName("canScan")
	*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = false
}
