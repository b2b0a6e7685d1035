package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/objects/torch"
	"github.com/allocscope/allocscope/tracer/objects/worker"
)

// CensusOptions limit the censuses of a trace. A census has samples of the objects that the first one of
// its process did not have.
type CensusOptions struct {
	// Limit and Samples are those of objects.CensusOptions.
	Limit   time.Duration
	Samples int
}

// Census counts the objects of the traced processes that have Python. It may be called from any
// goroutine. It returns what it could count, also with an error; without Python there is neither.
func (s *Session) Census(ctx context.Context, o CensusOptions) ([]*objects.Census, error) {
	var counted []*objects.Census
	var errs []error
	for _, t := range s.targets.list() {
		if !t.isAlive() {
			continue
		}
		began := s.Elapsed()
		before, err := s.sampledTensors(t)
		if err != nil {
			errs = append(errs, err)
		}
		answer, err := s.askWorker(ctx, t, worker.Request{
			Census: &objects.CensusOptions{Limit: o.Limit, Samples: o.Samples},
		})
		switch {
		case err == nil:
			answer.Census.Elapsed = began
			errs = append(errs, s.traceTensors(t, answer.Census, before))
			counted = append(counted, answer.Census)
		case !errors.Is(err, objects.ErrNoPython):
			errs = append(errs, err)
		}
	}
	return counted, errors.Join(errs...)
}

// sampledTensors returns the sampled tensors of a target that are alive; nil: it has not been probed
// for them without a gap.
func (s *Session) sampledTensors(t *target) (map[estimate.SampledTensor]float64, error) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()

	p := s.probing
	if !t.tensors.Complete() || p.tensorInterval == 0 || p.tensorsAlone && p.schedule.HadBursts() {
		return nil, nil
	}
	return estimate.ReadSampledTensors(s.kernel, t.process.PID)
}

// traceTensors sets which stacks have allocated the tensors of a census, and what C++ alone holds.
// before are the sampled tensors from before the census; nil: they are not known.
func (s *Session) traceTensors(
	t *target, c *objects.Census, before map[estimate.SampledTensor]float64,
) error {
	if c.Tensors.Unknown != "" {
		return nil
	}
	after, err := s.sampledTensors(t)
	if before != nil && after != nil {
		c.Tensors.InCPPOnly = torch.InCPPOnly(c.Storages, before, after)
	}
	if len(c.Storages) == 0 || err != nil {
		return err
	}

	stacks := make(map[uint64]uint64, len(c.Storages))
	for _, of := range c.Storages {
		stacks[of.Data] = 0
	}
	s.events.Flush() // so that the stack of each object has been reported
	if err := s.findStacks(t, stacks, c.Elapsed); err != nil {
		return err
	}
	torch.SetStacks(c.Tensors.Groups, c.Storages, stacks)
	return nil
}

// findStacks sets the IDs of the stacks that have allocated the memory at some addresses, before
// some time since the start of the trace.
func (s *Session) findStacks(
	t *target, stacks map[uint64]uint64, before time.Duration,
) error {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()

	err := estimate.StacksAt(s.kernel, s.estimator(), t.process.PID, stacks, s.started+uint64(before))
	if err != nil {
		return err
	}
	for address, id := range stacks {
		stack, ok := t.stacks.Find(id)
		if !ok {
			delete(stacks, address)
			continue
		}
		stacks[address] = stack.ID
	}
	return nil
}

// ObjectsCPUTime is the CPU time that censuses and searches have taken.
func (s *Session) ObjectsCPUTime() time.Duration { return s.objectWorker.CPUTime() }

// HurryObjects has censuses and searches no longer wait for idle CPUs: somebody waits for them.
func (s *Session) HurryObjects() { s.objectWorker.Hurry() }

// askWorker asks the worker about a target. It is an error if that has ended meanwhile: what was read
// may be of another program.
func (s *Session) askWorker(
	ctx context.Context, t *target, ask worker.Request,
) (*worker.Response, error) {
	ask.PID, ask.Program = t.process.PID, uint64(t.from)
	answer, err := s.objectWorker.Ask(ctx, ask)
	if err == nil && !t.isAlive() {
		err = exitedError(t.process)
	}
	return answer, err
}

// estimator returns that of now. The caller holds probing.mu for as long as it is used.
func (s *Session) estimator() *estimate.Estimator {
	snapshot := growth.Snapshot{Elapsed: s.Elapsed()}
	bins := estimate.SetBins(&snapshot, s.started, nil)
	return s.probing.estimator(tracedSince(s.targets.list()), bins)
}

// A KeeperSearch is what to search for, in one process.
type KeeperSearch struct {
	PID int
	// Stacks has the IDs of the stacks of each suspect, the one that grew most first. Its sampled
	// objects are searched for: those that were allocated between two moments since the start of
	// the trace, at most MaxSamples of them.
	Stacks     [][]uint64
	From, To   time.Duration
	MaxSamples int
	// Types are suspects whose objects are known.
	Types []objects.Suspect
	// Limit of CPU time.
	Limit time.Duration
}

// Search finds who keeps the objects of suspects, those of Stacks first. It may be called from any
// goroutine. The results know the first of a suspect's stacks.
func (s *Session) Search(ctx context.Context, k KeeperSearch) ([]keeper.Search, error) {
	t := s.targets.traced(k.PID)
	if t == nil {
		return nil, fmt.Errorf("pid %d: %w", k.PID, ErrExited)
	}
	suspects, err := s.sampleStacks(t, &k)
	if err != nil {
		return nil, err
	}
	if suspects = append(suspects, k.Types...); len(suspects) == 0 {
		return nil, nil
	}

	answer, err := s.askWorker(ctx, t, worker.Request{Suspects: suspects, Limit: k.Limit})
	if err != nil {
		return nil, err
	}
	for i := range answer.Searches {
		answer.Searches[i].Elapsed = s.Elapsed()
	}
	return answer.Searches, nil
}

// sampleStacks returns the suspects of stacks that have sampled objects now.
func (s *Session) sampleStacks(t *target, k *KeeperSearch) ([]objects.Suspect, error) {
	groups := make(map[uint64]int) // by the kernel side's stack ID; -1: not wanted
	groupOf := func(tgid uint32, id uint64) (int, bool) {
		if tgid != uint32(t.process.PID) {
			return 0, false
		}
		group, known := groups[id]
		if !known {
			group = -1
			if stack, ok := t.stacks.Find(id); ok {
				group = slices.IndexFunc(k.Stacks, func(of []uint64) bool {
					return slices.Contains(of, stack.ID)
				})
			}
			groups[id] = group
		}
		return group, group >= 0
	}

	s.events.Flush() // so that the stack of each object has been reported
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()
	samples, err := estimate.SampleLive(s.kernel, s.estimator(), groupOf, len(k.Stacks),
		s.started+uint64(k.From), s.started+uint64(k.To), k.MaxSamples)
	if err != nil {
		return nil, err
	}

	var suspects []objects.Suspect
	for i, addresses := range samples {
		if len(addresses) > 0 {
			suspects = append(suspects, objects.Suspect{Stack: k.Stacks[i][0], Objects: addresses})
		}
	}
	return suspects, nil
}
