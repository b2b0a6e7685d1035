package tracer

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

// printNew takes the fingerprints of what was born in a window that has just ended.
func (s *Session) printNew(ended spell) {
	known := s.watch.survivors.known
	byTarget := make(map[uint32][]liveness.Object)
	for key, f := range known {
		if f.born >= ended.from {
			byTarget[key.Tgid] = append(byTarget[key.Tgid], liveness.Object{Address: key.Address, Size: f.size})
		}
	}
	for tgid, objects := range byTarget {
		t := s.target(tgid)
		if t == nil || !t.lives() {
			continue
		}
		prints, err := liveness.Fingerprints(t.process, objects)
		if err != nil {
			continue // what they hold tells nothing then
		}
		for i, o := range objects {
			key := bpf.KernelAddress{Address: o.Address, Tgid: tgid}
			f := known[key]
			f.print = prints[i]
			known[key] = f
		}
	}
}

// prints are those of the objects of a stack.
type prints struct {
	seen      map[liveness.Fingerprint]int
	all, same int
}

func (p *prints) add(f followed) {
	if f.print == 0 {
		return
	}
	if p.seen == nil {
		p.seen = make(map[liveness.Fingerprint]int)
	}
	p.seen[f.print]++
	p.all++
	if !f.changed {
		p.same++
	}
}

func (p *prints) merge(other *prints) {
	for print, n := range other.seen {
		if p.seen == nil {
			p.seen = make(map[liveness.Fingerprint]int)
		}
		p.seen[print] += n
	}
	p.all += other.all
	p.same += other.same
}

// tell what they say.
func (p *prints) tell(s *growth.Sighting) {
	s.Printed, s.Same = p.all, p.same
	alike := 0.0
	for _, n := range p.seen {
		alike += float64(n) * float64(n-1)
	}
	if n := float64(p.all); n > 1 {
		s.Differ = 1 - alike/(n*(n-1))
	}
}
