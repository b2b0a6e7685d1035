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
	"github.com/allocscope/allocscope/tracer/objects/worker"
	"github.com/allocscope/allocscope/tracer/torch"
)

// CensusOptions limit a census of a traced process. It has samples of the objects that the first
// census of the process did not have.
type CensusOptions struct {
	PID int
	// Limit and Samples are as in objects.CensusOptions.
	Limit   time.Duration
	Samples int
}

// TracedPIDs returns the PIDs of the traced processes that live.
func (s *Session) TracedPIDs() (pids []int) {
	for _, t := range s.targets.list() {
		if t.isAlive() {
			pids = append(pids, t.process.PID)
		}
	}
	return pids
}

// Census counts the objects of a traced process. It may be called from any goroutine. The error
// wraps objects.ErrNoPython where the process has no Python. There may be both a census and an error
// of its tensors.
func (s *Session) Census(ctx context.Context, o CensusOptions) (*objects.Census, error) {
	t := s.targets.traced(o.PID)
	if t == nil {
		return nil, fmt.Errorf("pid %d: %w", o.PID, ErrExited)
	}
	began := s.Elapsed()
	before, tensorsErr := s.sampledTensors(t)
	answer, err := s.askWorker(ctx, t, worker.Request{
		Census: &objects.CensusOptions{Limit: o.Limit, Samples: o.Samples},
	})
	if err != nil {
		return nil, err
	}
	answer.Census.Elapsed = began
	return answer.Census, errors.Join(tensorsErr, s.traceTensors(t, answer.Census, before))
}

// sampledTensors returns the sampled tensors of a target that are alive; nil: it has not been probed
// for them without a gap.
func (s *Session) sampledTensors(t *target) (map[torch.SampledTensor]float64, error) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()

	p := s.probing
	if !t.tensors.Complete() || p.tensorInterval == 0 || p.tensorsAlone && p.schedule.HadBursts() {
		return nil, nil
	}
	return estimate.ReadSampledTensors(s.kernel, t.process.PID)
}

// traceTensors sets which stacks have allocated the tensors of a census, and the memory that C++
// alone holds. before are the sampled tensors from before the census; nil: they are not known.
func (s *Session) traceTensors(
	t *target, c *objects.Census, before map[torch.SampledTensor]float64,
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

// askWorker asks the worker about a target. It is an error if the target has ended meanwhile: the
// answer may be about another program.
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

// estimator returns the present estimator. The caller holds probing.mu for as long as it is used.
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

// Search finds who keeps the objects of suspects, the suspects of Stacks first. It may be called
// from any goroutine. The results know the first of a suspect's stacks.
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
		found := &answer.Searches[i]
		found.Elapsed -= time.Duration(s.started)
		found.TracedSince = t.from
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
	candidates, err := estimate.LiveCandidates(s.kernel, groupOf, len(k.Stacks),
		s.started+uint64(k.From), s.started+uint64(k.To))
	if err != nil {
		return nil, err
	}

	s.probing.mu.Lock() // not while the maps are read: snapshots and the controller need it
	defer s.probing.mu.Unlock()
	estimator := s.estimator()
	var suspects []objects.Suspect
	for i, group := range candidates {
		if alive := estimator.Alive(group, k.MaxSamples); len(alive) > 0 {
			suspects = append(suspects, objects.Suspect{Stack: k.Stacks[i][0], Objects: alive})
		}
	}
	return suspects, nil
}
