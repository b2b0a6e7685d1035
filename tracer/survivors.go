package tracer

import (
	"fmt"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// pollEvery is how often survivors are looked at from outside.
	pollEvery = 10 * time.Second
	// polling is the share of a core that this may take.
	polling = 0.005
)

// survivors are the objects of the live map that outlived the spell in which they were seen. Nobody sees them being freed until
// the next one: they are looked at from outside, and what is shown to be dead is deleted.
type survivors struct {
	known      map[bpf.KernelAddress]followed
	hazards    map[origin]*growth.Hazard
	allocators map[*target]allocator
	polled     time.Time
	cost       time.Duration // of the last poll
}

// followed is a survivor, and when it was last known to be one, in ns.
type followed struct {
	born, size, stack uint64
	seen              uint64
	print             liveness.Fingerprint // when the window of its birth had ended; 0: not known
	changed           bool                 // it was another one later
}

// An allocator is what is known of that of a target; err: nothing can be told of its objects.
type allocator struct {
	*liveness.Allocator
	err error
}

// hazard of a stack.
func (v *survivors) hazard(of origin) *growth.Hazard {
	h := v.hazards[of]
	if h == nil {
		h = &growth.Hazard{}
		v.hazards[of] = h
	}
	return h
}

// afterSpell takes stock of the live map when a spell has ended: what is gone has been freed in it. probed are the processes in which
// that was seen.
func (s *Session) afterSpell(ended spell, probed map[uint32]bool) error {
	v := &s.watch.survivors
	watched := s.watch.log.worth(ended)
	err := readMap(s.kernel.Maps[bpf.KernelMapLive], func(key *bpf.KernelAddress, a *bpf.KernelAllocation) {
		old, ok := v.known[*key]
		if ok && old.seen == ended.to {
			return // met twice
		}
		if ok && probed[key.Tgid] {
			v.expose(key, old, ended.from, watched, old.born != a.Born)
		}
		if !ok || old.born != a.Born {
			old = followed{born: a.Born, size: a.Size, stack: a.Stack}
		}
		old.seen = ended.to
		v.known[*key] = old
	})
	if err != nil {
		return fmt.Errorf("read live map: %w", err)
	}
	for key, old := range v.known {
		if old.seen == ended.to {
			continue
		}
		if probed[key.Tgid] {
			v.expose(&key, old, ended.from, watched, true)
		}
		delete(v.known, key)
	}
	return nil
}

// expose notes that an object was watched in a window from a moment on, for so many seconds.
func (v *survivors) expose(key *bpf.KernelAddress, f followed, from uint64, seconds float64, died bool) {
	if seconds <= 0 {
		return
	}
	fate := v.hazard(origin{key.Tgid, f.stack}).At(time.Duration(from - min(f.born, from)))
	fate.Exposure += seconds
	if died {
		fate.Deaths++
	}
}

// pollSurvivors looks at all survivors where that is due and no probe is open, so that nothing is added to the live map
// meanwhile, and deletes those that are dead.
func (s *Session) pollSurvivors() {
	w, v := s.watch, &s.watch.survivors
	w.mu.Lock()
	byTarget := v.due(time.Now(), w.log.isOpen())
	w.mu.Unlock()
	if byTarget == nil {
		return
	}
	v.cost = process.ProcessorTime(func() {
		for tgid, objects := range byTarget {
			s.pollTarget(tgid, objects)
		}
	})
}

// due gives the survivors by PID if they are to be looked at.
func (v *survivors) due(now time.Time, isOpen bool) map[uint32][]liveness.Object {
	every := max(pollEvery, time.Duration(float64(v.cost)/polling))
	if isOpen || len(v.known) == 0 || now.Sub(v.polled) < every {
		return nil
	}
	v.polled = now
	byTarget := make(map[uint32][]liveness.Object)
	for key, f := range v.known {
		byTarget[key.Tgid] = append(byTarget[key.Tgid], liveness.Object{Address: key.Address, Size: f.size})
	}
	return byTarget
}

// pollTarget looks at the survivors of a process, if it is still there and executes what is traced.
func (s *Session) pollTarget(tgid uint32, objects []liveness.Object) {
	s.reading.Lock()
	defer s.reading.Unlock()
	t := s.target(tgid)
	if t == nil || !t.lives() {
		return
	}
	looks, err := s.lookAt(t, objects)
	if err != nil || t.check() != nil {
		return
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if s.target(tgid) == t {
		deleteAll(s.kernel.Maps[bpf.KernelMapLive], s.watch.survivors.settle(tgid, looks))
	}
}

// A sight is what was seen of an object from outside.
type sight struct {
	liveness.Object
	state liveness.State
	print liveness.Fingerprint
}

// lookAt tells which of the objects are alive.
func (s *Session) lookAt(t *target, objects []liveness.Object) ([]sight, error) {
	a := s.allocatorOf(t)
	if a.err != nil {
		return nil, a.err
	}
	maps, err := t.process.Maps()
	if err != nil {
		return nil, err
	}
	memory, err := memoryOf(t.process, maps)
	if err != nil {
		return nil, err
	}
	states, err := a.Look(memory, maps, objects)
	if err != nil {
		return nil, err
	}
	prints, err := liveness.Fingerprints(memory, objects)
	if err != nil {
		return nil, err
	}
	sights := make([]sight, len(objects))
	for i := range sights {
		sights[i] = sight{objects[i], states[i], prints[i]}
	}
	return sights, nil
}

// settle notes what was found of the survivors of a process, and gives those that are dead.
func (v *survivors) settle(tgid uint32, sights []sight) (dead []bpf.KernelAddress) {
	now := monotonic()
	for _, s := range sights {
		key := bpf.KernelAddress{Address: s.Address, Tgid: tgid}
		f, ok := v.known[key]
		if !ok || s.state == liveness.Unknown {
			continue
		}
		fate := v.hazard(origin{tgid, f.stack}).At(time.Duration(f.seen - min(f.born, f.seen)))
		fate.Followed += time.Duration(now - f.seen).Seconds()
		if s.state == liveness.Dead {
			fate.Found++
			dead = append(dead, key)
			delete(v.known, key)
			continue
		}
		f.seen = now
		f.changed = f.changed || s.print != 0 && s.print != f.print
		v.known[key] = f
	}
	return dead
}

// allocatorOf a target is looked for once.
func (s *Session) allocatorOf(t *target) allocator {
	w := s.watch
	w.mu.Lock()
	a, ok := w.survivors.allocators[t]
	w.mu.Unlock()
	if ok {
		return a
	}
	maps, err := t.process.Maps()
	if err == nil {
		a.Allocator, err = liveness.Find(t.process, maps)
	}
	a.err = err
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.check() == nil && s.target(uint32(t.process.PID)) == t { // else what was found may be of something else
		w.survivors.allocators[t] = a
	}
	return a
}

// forget drops what belongs to a target that is traced no more.
func (v *survivors) forget(t *target) {
	delete(v.allocators, t)
	pid := uint32(t.process.PID)
	for key := range v.known {
		if key.Tgid == pid {
			delete(v.known, key)
		}
	}
	for from := range v.hazards {
		if from.tgid == pid {
			delete(v.hazards, from)
		}
	}
}

// blind says why of a traced process it cannot be seen from outside what is alive; empty: it can.
func (v *survivors) blind() string {
	for _, a := range v.allocators {
		if a.err != nil {
			return a.err.Error()
		}
	}
	return ""
}
