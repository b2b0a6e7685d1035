package liveness

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/stack"
)

// checkSpacing is the least time between two checks: a check costs no less than accrues in it.
const checkSpacing = 10 * time.Second

// Tracker follows the objects of the live map that outlived the probe period of their birth. No
// probe sees them being freed until the next period, so their memory is checked instead. The
// deaths that both ways find give the hazard rates of their stacks.
//
// It is not safe for concurrent use.
type Tracker struct {
	Objects     map[bpf.Address]TrackedObject
	HazardRates map[stack.Key]*growth.HazardRate
	Allocators  map[uint32]ProcessAllocator // by PID
	Limit       duty.Account                // of the checks

	// SeesMappings: source mapping is attached.
	SeesMappings bool
}

// NewTracker returns a tracker without objects. limit is of the CPU time of the checks.
func NewTracker(limit duty.Account) Tracker {
	return Tracker{
		Objects:     make(map[bpf.Address]TrackedObject),
		HazardRates: make(map[stack.Key]*growth.HazardRate),
		Allocators:  make(map[uint32]ProcessAllocator),
		Limit:       limit,
	}
}

// TrackedObject is an object that outlived the probe period of its birth.
type TrackedObject struct {
	born, lastAlive uint64      // ns, CLOCK_MONOTONIC
	size, stack     uint64      // size in bytes; stack is the kernel side's ID
	Fingerprint     Fingerprint // at the end of the burst of its birth; 0: unknown
	Changed         bool        // a later fingerprint differed
	Mapped          bool        // it has a mapping of its own, which source mapping sees
}

// ageAt returns the age at a moment, 0 before the birth.
func (o *TrackedObject) ageAt(moment uint64) time.Duration {
	return time.Duration(moment - min(o.born, moment))
}

// Due returns the objects to check, by PID. It returns nil if no check is due yet, or if probes
// are open: they see each free themselves.
func (t *Tracker) Due(now time.Time, isOpen bool) map[uint32][]heap.Object {
	if isOpen || len(t.Objects) == 0 || !t.Limit.Allowed(now) {
		return nil
	}
	return t.NewSince(0)
}

// SpendOnCheck records the CPU time of the check of the objects that Due has returned.
func (t *Tracker) SpendOnCheck(cost time.Duration) {
	t.Limit.Spend(max(cost, time.Duration(t.Limit.Share()*float64(checkSpacing))))
}

// NewSince returns the objects that were born at a moment or later, by PID.
func (t *Tracker) NewSince(from uint64) map[uint32][]heap.Object {
	byPID := make(map[uint32][]heap.Object)
	for key, o := range t.Objects {
		if o.born >= from {
			object := heap.Object{Address: key.Address, Size: o.size}
			byPID[key.Tgid] = append(byPID[key.Tgid], object)
		}
	}
	return byPID
}

// Observe takes in the live map at the end of a probe period, from one moment to another. Tracked
// objects that are gone, or whose address has another birth, were freed in the period. Such objects
// of the processes in probed count as deaths, and all of them as exposed for seconds
// (estimate.Schedule.ExposureSeconds).
func (t *Tracker) Observe(
	live *ebpf.Map, from, to uint64, seconds float64, probed map[uint32]bool,
) error {
	err := kernel.ReadMap(live, func(key *bpf.Address, a *bpf.Allocation) {
		if a.Weight != 0 {
			return // a producer sees it being freed at any time
		}
		o, ok := t.Objects[*key]
		if ok && o.lastAlive == to {
			return // the iteration of the map returned it twice
		}

		if ok && probed[key.Tgid] {
			t.recordExposure(key, o, from, seconds, o.born != a.Born)
		}
		if !ok || o.born != a.Born {
			o = TrackedObject{born: a.Born, size: a.Size, stack: a.Stack}
		}
		o.lastAlive = to
		t.Objects[*key] = o
	})
	if err != nil {
		return fmt.Errorf("read live map: %w", err)
	}

	// The kernel's map has lost the others: a probe has seen them being freed.
	for key, o := range t.Objects {
		if o.lastAlive == to {
			continue
		}

		if probed[key.Tgid] {
			t.recordExposure(&key, o, from, seconds, true)
		}
		delete(t.Objects, key)
	}

	return nil
}

// recordExposure adds the seconds for which a burst observed an object to the death statistics of
// its stack, at the age that it had at the start of the burst.
func (t *Tracker) recordExposure(
	key *bpf.Address, o TrackedObject, from uint64, seconds float64, died bool,
) {
	if seconds <= 0 {
		return
	}

	counts := t.hazardRate(stack.Key{TGID: key.Tgid, ID: o.stack}).At(o.ageAt(from))
	counts.ExposureSeconds += seconds
	if died {
		counts.Deaths++
	}
}

// hazardRate returns the hazard rate of the objects of a stack, an empty one if there was none.
func (t *Tracker) hazardRate(key stack.Key) *growth.HazardRate {
	rate := t.HazardRates[key]
	if rate == nil {
		rate = &growth.HazardRate{}
		t.HazardRates[key] = rate
	}
	return rate
}

// Adopt begins to track an object that is moved into the live map. now is in ns, CLOCK_MONOTONIC.
func (t *Tracker) Adopt(key bpf.Address, a *bpf.Allocation, now uint64) {
	t.Objects[key] = TrackedObject{born: a.Born, size: a.Size, stack: a.Stack, lastAlive: now}
}

// InspectNew takes the fingerprints of objects of a process that were born in the last burst, and
// finds the objects that have a mapping of their own. An error of memory leaves them as they are.
func (t *Tracker) InspectNew(memory mem.Reader, tgid uint32, objects []heap.Object) error {
	fingerprints, err := fingerprintsOf(memory, objects)
	if err != nil {
		return err
	}
	mapped, err := glibc.HaveMappings(memory, objects)
	if err != nil {
		return err
	}

	// An object with a mapping of its own is unmapped when it is freed, which source mapping sees: no
	// check has to find it dead.
	for i, object := range objects {
		key := bpf.Address{Address: object.Address, Tgid: tgid}
		o := t.Objects[key]
		o.Fingerprint, o.Mapped = fingerprints[i], mapped[i] && t.SeesMappings
		t.Objects[key] = o
	}
	return nil
}

// checkedObject is the result of CheckObjects for an object.
type checkedObject struct {
	heap.Object
	state       heap.State
	fingerprint Fingerprint
}

// Apply records the results of CheckObjects on a process. It stops tracking the dead ones, and
// returns their keys in the live map.
func (t *Tracker) Apply(tgid uint32, checked []checkedObject) (dead []bpf.Address) {
	now := kernel.Monotonic()
	for _, c := range checked {
		key := bpf.Address{Address: c.Address, Tgid: tgid}
		o, ok := t.Objects[key]
		if !ok || c.state == heap.Unknown {
			continue
		}

		// An object looks alive if another one of its size class has got its address. How many do
		// follows from the rate of the deaths that are found, beside the rate within bursts.
		counts := t.hazardRate(stack.Key{TGID: tgid, ID: o.stack}).At(o.ageAt(o.lastAlive))
		counts.TrackedSeconds += time.Duration(now - o.lastAlive).Seconds()
		if c.state == heap.Dead {
			counts.FoundDead++
			dead = append(dead, key)
			delete(t.Objects, key)
			continue
		}

		o.lastAlive = now
		o.Changed = o.Changed || c.fingerprint != 0 && c.fingerprint != o.Fingerprint
		t.Objects[key] = o
	}
	return dead
}

// Forget drops everything about a process that is not traced any more.
func (t *Tracker) Forget(pid uint32) {
	delete(t.Allocators, pid)
	for key := range t.Objects {
		if key.Tgid == pid {
			delete(t.Objects, key)
		}
	}
	for key := range t.HazardRates {
		if key.TGID == pid {
			delete(t.HazardRates, key)
		}
	}
}

// UntrackableReason returns why the objects of some traced process cannot be checked; empty: all
// can.
func (t *Tracker) UntrackableReason() string {
	for _, a := range t.Allocators {
		if err := a.untrackable(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// SizeClass returns the size class of an object in a process, see heap.Allocator.
func (t *Tracker) SizeClass(tgid uint32, size uint64) uint64 {
	if a := t.Allocators[tgid].Allocator; a != nil {
		return a.SizeClass(size)
	}
	return glibc.SizeClass(size)
}
