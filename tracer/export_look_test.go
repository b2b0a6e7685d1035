package tracer

import (
	"reflect"
	"unsafe"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// LookAt is what a snapshot says of a traced process of whose large mappings a share is looked at.
func (s *Session) LookAt(pid int, share float64) (*growth.Snapshot, error) {
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed()}
	now := s.bins(snapshot, nil)
	objects, err := readLive(s.kernel, s.watch.books(nil), make(map[origin]*sum), now, s.objects)
	if err != nil {
		return nil, err
	}
	devices, err := readDevices(s.kernel, now)
	if err != nil {
		return nil, err
	}
	faults, err := readFaults(s.kernel)
	if err != nil {
		return nil, err
	}
	t, held := s.targets.find(uint32(pid)), make(holdings)
	maps := t.reconcile(s.notices.take(pid))
	found, err := t.occupancy.look(maps, t.space.Intervals(), share, nil)
	if err != nil {
		return nil, err
	}
	l := newLedger(found, pid, t.stacks.get, held, make(countedFiles))
	l.knowsHeap, l.knowsAll = s.watch.watchesHeap(t)
	l.fill(contents{objects: objects[uint32(pid)], faults: faults[uint32(pid)], pins: devices.pins[uint32(pid)]})
	t.addMappings(held, found, &snapshot.Mappings)
	snapshot.Holdings = held.list()
	snapshot.Residents = []growth.Resident{found.resident(growth.Process{PID: pid})}
	return snapshot, nil
}

// ReadPages has the pages of all processes that are known read as on kernels without PAGEMAP_SCAN.
func (s *Session) ReadPages() {
	for _, t := range s.targets.list() {
		readPages(t.occupancy.pages)
	}
	for _, o := range s.looker.others.members {
		if o.occupancy != nil {
			readPages(o.occupancy.pages)
		}
	}
}

// readPages makes the page map forget that the kernel can scan.
func readPages(pages *process.Pages) {
	field := reflect.ValueOf(pages).Elem().FieldByName("scan")
	*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = false
}
