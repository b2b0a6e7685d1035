package liveness

import (
	"fmt"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/cilium/ebpf"
)

const (
	// checkEvery is how often survivors are looked at from outside.
	checkEvery = 10 * time.Second
	// polling is the share of a core that this may take.
	checkCPUShare = 0.005
)

// survivors are the objects of the live map that outlived the spell in which they were seen. Nobody sees them being freed until
// the next one: they are looked at from outside, and what is shown to be dead is deleted.
type Tracker struct {
	Objects     map[bpf.Address]Tracked
	HazardRates map[stack.Key]*growth.HazardRate
	Allocators  map[uint32]ProcessAllocator // by PID
	Checked     time.Time
	Cost        time.Duration // of the last poll
}

// followed is a survivor, and when it was last known to be one, in ns.
type Tracked struct {
	born, size, stack uint64
	seen              uint64
	Fingerprint       Fingerprint // when the window of its birth had ended; 0: not known
	Changed           bool        // it was another one later
}

// An allocator is what is known of that of a target; err: nothing can be told of its objects.
type ProcessAllocator struct {
	*Allocator
	err error
}

// hazard of a stack.
func (v *Tracker) hazardRate(of stack.Key) *growth.HazardRate {
	h := v.HazardRates[of]
	if h == nil {
		h = &growth.HazardRate{}
		v.HazardRates[of] = h
	}
	return h
}

// expose notes that an object was watched in a window from a moment on, for so many seconds.
func (v *Tracker) recordExposure(key *bpf.Address, f Tracked, from uint64, seconds float64, died bool) {
	if seconds <= 0 {
		return
	}
	fate := v.hazardRate(stack.Key{key.Tgid, f.stack}).At(time.Duration(from - min(f.born, from)))
	fate.ExposureSeconds += seconds
	if died {
		fate.Deaths++
	}
}

// due gives the survivors by PID if they are to be looked at.
func (v *Tracker) Due(now time.Time, isOpen bool) map[uint32][]Object {
	every := max(checkEvery, time.Duration(float64(v.Cost)/checkCPUShare))
	if isOpen || len(v.Objects) == 0 || now.Sub(v.Checked) < every {
		return nil
	}
	v.Checked = now
	byTarget := make(map[uint32][]Object)
	for key, f := range v.Objects {
		byTarget[key.Tgid] = append(byTarget[key.Tgid], Object{Address: key.Address, Size: f.size})
	}
	return byTarget
}

// A sight is what was seen of an object from outside.
type checked struct {
	Object
	state State
	print Fingerprint
}

// settle notes what was found of the survivors of a process, and gives those that are dead.
func (v *Tracker) Apply(tgid uint32, sights []checked) (dead []bpf.Address) {
	now := kernel.Monotonic()
	for _, s := range sights {
		key := bpf.Address{Address: s.Address, Tgid: tgid}
		f, ok := v.Objects[key]
		if !ok || s.state == Unknown {
			continue
		}
		fate := v.hazardRate(stack.Key{tgid, f.stack}).At(time.Duration(f.seen - min(f.born, f.seen)))
		fate.TrackedSeconds += time.Duration(now - f.seen).Seconds()
		if s.state == Dead {
			fate.FoundDead++
			dead = append(dead, key)
			delete(v.Objects, key)
			continue
		}
		f.seen = now
		f.Changed = f.Changed || s.print != 0 && s.print != f.Fingerprint
		v.Objects[key] = f
	}
	return dead
}

// forget drops what belongs to a target that is traced no more.
func (v *Tracker) Forget(pid uint32) {
	delete(v.Allocators, pid)
	for key := range v.Objects {
		if key.Tgid == pid {
			delete(v.Objects, key)
		}
	}
	for from := range v.HazardRates {
		if from.TGID == pid {
			delete(v.HazardRates, from)
		}
	}
}

// blind says why of a traced process it cannot be seen from outside what is alive; empty: it can.
func (v *Tracker) UntrackableReason() string {
	for _, a := range v.Allocators {
		if a.err != nil {
			return a.err.Error()
		}
	}
	return ""
}

// lookAt tells which of the objects are alive.
func (a ProcessAllocator) CheckObjects(p *process.Process, objects []Object) ([]checked, error) {
	if a.err != nil {
		return nil, a.err
	}
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	memory, err := memoryOf(p, maps)
	if err != nil {
		return nil, err
	}
	states, err := a.Check(memory, maps, objects)
	if err != nil {
		return nil, err
	}
	prints, err := Fingerprints(memory, objects)
	if err != nil {
		return nil, err
	}
	sights := make([]checked, len(objects))
	for i := range sights {
		sights[i] = checked{objects[i], states[i], prints[i]}
	}
	return sights, nil
}

// AllocatorOf looks for that of a process.
func AllocatorOf(p *process.Process) (a ProcessAllocator) {
	maps, err := p.Maps()
	if err == nil {
		a.Allocator, err = FindAllocator(p, maps)
	}
	a.err = err
	return a
}

// observe takes in the objects that are in the live map when a spell has ended: what is gone has been freed in it. probed are the
// processes in which that was seen, and seconds is what the spell is worth.
func (v *Tracker) Observe(live *ebpf.Map, from, to uint64, seconds float64, probed map[uint32]bool) error {
	err := kernel.ReadMap(live, func(key *bpf.Address, a *bpf.Allocation) {
		old, ok := v.Objects[*key]
		if ok && old.seen == to {
			return // met twice
		}
		if ok && probed[key.Tgid] {
			v.recordExposure(key, old, from, seconds, old.born != a.Born)
		}
		if !ok || old.born != a.Born {
			old = Tracked{born: a.Born, size: a.Size, stack: a.Stack}
		}
		old.seen = to
		v.Objects[*key] = old
	})
	if err != nil {
		return fmt.Errorf("read live map: %w", err)
	}
	for key, old := range v.Objects {
		if old.seen == to {
			continue
		}
		if probed[key.Tgid] {
			v.recordExposure(&key, old, from, seconds, true)
		}
		delete(v.Objects, key)
	}
	return nil
}

// newSince gives the objects that were born at that moment or later, by PID.
func (v *Tracker) NewSince(from uint64) map[uint32][]Object {
	byPID := make(map[uint32][]Object)
	for key, f := range v.Objects {
		if f.born >= from {
			byPID[key.Tgid] = append(byPID[key.Tgid], Object{Address: key.Address, Size: f.size})
		}
	}
	return byPID
}

// setPrints notes the fingerprints of objects of a process.
func (v *Tracker) SetFingerprints(tgid uint32, objects []Object, prints []Fingerprint) {
	for i, o := range objects {
		key := bpf.Address{Address: o.Address, Tgid: tgid}
		f := v.Objects[key]
		f.Fingerprint = prints[i]
		v.Objects[key] = f
	}
}

// adopt begins to follow an object that is moved into the live map.
func (v *Tracker) Adopt(key bpf.Address, a *bpf.Allocation, now uint64) {
	v.Objects[key] = Tracked{born: a.Born, size: a.Size, stack: a.Stack, seen: now}
}

func NewTracker() Tracker {
	return Tracker{
		Objects: make(map[bpf.Address]Tracked), HazardRates: make(map[stack.Key]*growth.HazardRate), Allocators: make(map[uint32]ProcessAllocator),
	}
}
