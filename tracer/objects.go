package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
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

// objectReader counts the objects of targets, and searches for who keeps them, in a child process.
type objectReader struct {
	kernel  *kernel.Kernel
	events  *eventReader
	targets *targetSet
	probing *probing
	clock   *clock
	worker  worker.Worker
	walks   atomic.Int64 // ns of CPU time that walks of malloc's heaps have taken
}

func (r *objectReader) open(s *Session) {
	r.kernel, r.events, r.probing = s.kernel, s.events, s.probing
	r.targets, r.clock = &s.targets.targetSet, &s.clock
}

// Census counts the objects of a traced process. It may be called from any goroutine. The error
// wraps objects.ErrNoPython where the process has no Python. There may be both a census and an error
// of its tensors.
func (r *objectReader) Census(ctx context.Context, o CensusOptions) (*objects.Census, error) {
	t := r.targets.traced(o.PID)
	if t == nil {
		return nil, fmt.Errorf("pid %d: %w", o.PID, ErrExited)
	}
	began := r.clock.Elapsed()
	before, tensorsErr := r.sampledTensors(t)
	answer, err := r.askWorker(ctx, t, worker.Request{
		Census: &objects.CensusOptions{Limit: o.Limit, Samples: o.Samples},
	})
	if err != nil {
		return nil, err
	}
	answer.Census.Elapsed = began
	return answer.Census, errors.Join(tensorsErr, r.traceTensors(t, answer.Census, before))
}

// sampledTensors returns the sampled tensors of a target that are alive; nil: it has not been probed
// for them without a gap.
func (r *objectReader) sampledTensors(t *target) (map[torch.SampledTensor]float64, error) {
	r.probing.mu.Lock()
	defer r.probing.mu.Unlock()

	p := r.probing
	hadGap := !t.sources.Tensors.Complete() || p.tensorsAlone && p.schedule.HadBursts()
	if hadGap || p.tensorInterval == 0 {
		return nil, nil
	}
	return estimate.ReadSampledTensors(r.kernel, t.process.PID)
}

// traceTensors sets which stacks have allocated the tensors of a census, and the memory that C++
// alone holds. before are the sampled tensors from before the census; nil: they are not known.
func (r *objectReader) traceTensors(
	t *target, c *objects.Census, before map[torch.SampledTensor]float64,
) error {
	if c.Tensors.Unknown != "" {
		return nil
	}
	after, err := r.sampledTensors(t)
	if before != nil && after != nil {
		c.Tensors.InCPPOnly = torch.InCPPOnly(c.Storages, before, after)
	}
	if len(c.Storages) == 0 || err != nil {
		return err
	}

	stacks, onGPUs := make(map[uint64]uint64, len(c.Storages)), make(map[uint64]*growth.GPUTensor)
	for _, of := range c.Storages {
		if of.OnCUDA && of.Group < len(c.Tensors.Groups) {
			group := &c.Tensors.Groups[of.Group]
			onGPUs[of.Data] = &growth.GPUTensor{DType: group.DType, Shape: group.Shape}
			continue
		}
		stacks[of.Data] = 0
	}
	t.tensorsOnGPUs.Store(&onGPUs)
	r.events.Flush() // so that the stack of each object has been reported
	if err := r.findStacks(t, stacks, c.Elapsed); err != nil {
		return err
	}
	torch.SetStacks(c.Tensors.Groups, c.Storages, stacks)
	return nil
}

// findStacks sets the IDs of the stacks that have allocated the memory at some addresses, before
// some time since the start of the trace.
func (r *objectReader) findStacks(
	t *target, stacks map[uint64]uint64, before time.Duration,
) error {
	r.probing.mu.Lock()
	defer r.probing.mu.Unlock()

	until := r.clock.started + uint64(before)
	err := estimate.StacksAt(r.kernel, r.estimator(), t.process.PID, stacks, until)
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

// ObjectsCPUTime is the CPU time that censuses, searches and walks of malloc's heaps have taken.
func (r *objectReader) ObjectsCPUTime() time.Duration {
	return r.worker.CPUTime() + time.Duration(r.walks.Load())
}

// HurryObjects has censuses and searches no longer wait for idle CPUs: somebody waits for them.
func (r *objectReader) HurryObjects() { r.worker.Hurry() }

// askWorker asks the worker about a target. It is an error if the target has ended meanwhile: the
// answer may be about another program.
func (r *objectReader) askWorker(
	ctx context.Context, t *target, ask worker.Request,
) (*worker.Response, error) {
	ask.PID, ask.Program = t.process.PID, uint64(t.from)
	ask.Traced = r.clock.Elapsed() - t.from
	answer, err := r.worker.Ask(ctx, ask)
	if err == nil && !t.isAlive() {
		err = exitedError(t.process)
	}
	return answer, err
}

// estimator returns the present estimator. The caller holds probing.mu for as long as it is used.
func (r *objectReader) estimator() *estimate.Estimator {
	snapshot := growth.Snapshot{Elapsed: r.clock.Elapsed()}
	bins := estimate.SetBins(&snapshot, r.clock.started, nil)
	return r.probing.estimator(tracedSince(r.targets.list()), bins)
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
	// Again are earlier searches whose lost samples are searched for once more.
	Again []keeper.Search
	// Reread are searches whose containers are read once more, and nothing else is done; nil: none.
	Reread []keeper.Search
	// Limit of CPU time, of all. Again has half of it where there are other suspects.
	Limit time.Duration
}

// Search finds who keeps the objects of suspects, the suspects of Stacks first, then sweeps for
// the samples of Again. It may be called from any goroutine. The results know the first of a suspect's
// stacks. The searches of Again come last, each with its Proof.
func (r *objectReader) Search(ctx context.Context, k KeeperSearch) ([]keeper.Search, error) {
	t := r.targets.traced(k.PID)
	if t == nil {
		return nil, fmt.Errorf("pid %d: %w", k.PID, ErrExited)
	}
	if k.Reread != nil {
		return r.reread(ctx, t, k.Reread)
	}
	before, limit := r.worker.CPUTime(), k.Limit
	if len(k.Stacks)+len(k.Types) > 0 {
		limit /= 2
	}
	again, err := r.sweepAgain(ctx, t, &k, limit)
	if err != nil {
		return nil, err
	}
	suspects, ages, err := r.sampleStacks(t, &k)
	if err != nil {
		return again, err
	}
	if suspects = append(suspects, k.Types...); len(suspects) == 0 {
		return again, nil
	}

	answer, err := r.askWorker(ctx, t, worker.Request{
		Suspects: suspects, Limit: k.Limit - (r.worker.CPUTime() - before),
	})
	if err != nil {
		return again, err
	}
	for i := range answer.Searches {
		found := &answer.Searches[i]
		r.setTimes(t, found)
		if i < len(ages) {
			found.Ages = ages[i]
		}
	}
	return append(answer.Searches, again...), nil
}

// reread reads the containers of searches once more. It returns the searches of which it could.
func (r *objectReader) reread(
	ctx context.Context, t *target, searches []keeper.Search,
) ([]keeper.Search, error) {
	answer, err := r.askWorker(ctx, t, worker.Request{Reread: searches})
	if err != nil {
		return nil, err
	}
	for i := range answer.Searches {
		r.setTimes(t, &answer.Searches[i])
	}
	return answer.Searches, nil
}

// setTimes sets the times of a search by the clock of the trace.
func (r *objectReader) setTimes(t *target, found *keeper.Search) {
	found.Elapsed -= time.Duration(r.clock.started)
	found.TracedSince = t.from
}

// sweepAgain sweeps for the lost samples of earlier searches, and returns these with their proofs.
func (r *objectReader) sweepAgain(
	ctx context.Context, t *target, k *KeeperSearch, limit time.Duration,
) (again []keeper.Search, err error) {
	if len(k.Again) == 0 {
		return nil, nil
	}
	again = slices.Clone(k.Again)
	var suspects []objects.Suspect
	for i := range again {
		s := &again[i]
		same, err := r.stillHeld(t, s)
		if err != nil {
			return nil, err
		}
		suspects = append(suspects, objects.Suspect{
			Stack: s.Stack, Type: s.Type, Objects: same, Collections: s.Sweep.MinCollections(),
		})
	}
	answer, err := r.askWorker(ctx, t,
		worker.Request{Suspects: suspects, Limit: limit, IsSweep: true})
	if err != nil {
		return nil, err
	}
	for i := range again {
		second := &answer.Searches[i]
		r.setTimes(t, second)
		again[i].SweepAgain(second)
	}
	return again, nil
}

// stillHeld returns the lost samples of a search. A sampled object of a stack that was freed since
// is left out: another object may have taken its place.
func (r *objectReader) stillHeld(t *target, s *keeper.Search) (same []uint64, err error) {
	if s.Stack == 0 {
		return s.Sweep.Lost, nil
	}
	stacks := make(map[uint64]uint64)
	for _, address := range s.Sweep.Lost {
		stacks[address] = 0
	}
	if err := r.findStacks(t, stacks, s.Ages.Until); err != nil {
		return nil, err
	}
	for _, address := range s.Sweep.Lost {
		if stacks[address] != 0 {
			same = append(same, address)
		}
	}
	return same, nil
}

// sampleStacks returns the suspects of stacks that have sampled objects now, with the ages of these.
func (r *objectReader) sampleStacks(
	t *target, k *KeeperSearch,
) (suspects []objects.Suspect, ages []keeper.Ages, err error) {
	if len(k.Stacks) == 0 {
		return nil, nil, nil
	}
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

	r.events.Flush() // so that the stack of each object has been reported
	candidates, err := estimate.LiveCandidates(r.kernel, groupOf, len(k.Stacks),
		r.clock.started+uint64(k.From), r.clock.started+uint64(k.To))
	if err != nil {
		return nil, nil, err
	}

	r.probing.mu.Lock() // not while the maps are read: snapshots and the controller need it
	defer r.probing.mu.Unlock()
	estimator := r.estimator()
	for i, group := range candidates {
		alive, first, last := estimator.Alive(group, k.MaxSamples)
		if len(alive) == 0 {
			continue
		}
		suspects = append(suspects, objects.Suspect{Stack: k.Stacks[i][0], Objects: alive})
		ages = append(ages, keeper.Ages{
			First: time.Duration(first - r.clock.started),
			Last:  time.Duration(last - r.clock.started), Since: k.From, Until: k.To,
		})
	}
	return suspects, ages, nil
}
