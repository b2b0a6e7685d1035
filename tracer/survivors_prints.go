package tracer

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

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
