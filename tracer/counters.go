package tracer

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Counters reads the counts of events and of losses. It returns only losses that have occurred.
func (s *Session) Counters() (growth.Events, growth.Losses, error) {
	s.following.Lock()
	defer s.following.Unlock()
	return s.counters()
}

// counters is Counters for a caller that holds following.
func (s *Session) counters() (growth.Events, growth.Losses, error) {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return growth.Events{}, nil, err
	}
	values[bpf.DropLiveFull] += s.probing.lost()
	if s.probing.hadBursts() { // liveness checks find the frees between them
		values[bpf.DropMissedFree] = 0
	}

	sum := s.targets.retired
	for _, t := range s.targets.list() {
		sum.add(t)
	}
	values[bpf.DropEvents] += s.events.journal.Lost() + sum.calls

	lost := s.kernel.Losses(values)
	stacks, cut, err := stack.ReadEnds(s.kernel)
	if err != nil {
		return growth.Events{}, nil, err
	}
	lost = append(lost, cut...)
	lost.Add(growth.LossUnknownStacks, "", sum.stacks)
	lost.Add(growth.LossForgottenStacks, "", sum.forgotten)
	lost.Add(growth.LossUnwindTables, "", uint64(s.tables.Stats().Dropped))
	lost.Add(growth.LossUnwindMappings, "", sum.mappings)
	lost.Add(growth.LossProcesses, "", s.follower.leftOut())

	return growth.Events{
		Allocations:    values[bpf.CountAllocations],
		Frees:          values[bpf.CountFrees],
		FreesUntracked: values[bpf.CountFreesUntracked],
		Samples:        values[bpf.CountSamples] + values[bpf.CountProducerSamples],
		Failed:         values[bpf.CountFailed],
		MappingCalls:   values[bpf.CountMappingCalls],
		Stacks:         stacks,

		StacksShortened: values[bpf.CountShortened],
		FramesLeftOut:   values[bpf.CountLeftOut],
	}, lost, nil
}

// leftOut returns how many processes are not followed, or begin to be late. They are no lost events:
// those would take claims away from all targets, also from those that start nothing.
func (f *follower) leftOut() uint64 {
	sum := uint64(f.LeftOut() + f.untraced)
	if launched := f.session.launched; launched != nil {
		sum += launched.lost.Load()
	}
	return sum
}

// losses are the losses of targets that user space counts.
type losses struct{ stacks, forgotten, mappings, calls uint64 }

func (l *losses) add(t *target) {
	l.stacks += t.stacks.Lost()
	l.forgotten += t.stacks.Forgotten()
	l.mappings += uint64(t.unwinder.Space.Dropped())
	if t.space != nil { // nil: attaching has failed
		l.calls += t.space.Lost()
	}
}
