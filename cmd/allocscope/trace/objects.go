package trace

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
)

const (
	// objectOwnPart is the part of the limit of allocscope's own CPU time that censuses and
	// searches may take, and objectBurst what they may take in advance.
	objectOwnPart = 0.3
	objectBurst   = 2 * time.Second

	// maxSearchTime is the most CPU time of one search.
	maxSearchTime = 10 * time.Second

	// firstCensusGap is the time from the first census to the second. From then on each comes when
	// twice as much time has passed since the start: one of them is near the baseline, wherever it
	// is.
	firstCensusGap = 10 * time.Second
	// searchGap is the least time between two searches of a trace without a fixed end.
	searchGap = 5 * time.Minute
	// lastObjectsTimeout is how long the end of a trace waits for the last census and search, and for
	// those that are under way.
	lastObjectsTimeout = 30 * time.Second
)

// Bounds on what is searched for.
const (
	maxSearchedSuspects = 4  // of stacks
	maxSearchedTypes    = 3  // that grow
	maxSearchSamples    = 16 // objects of each
	// minObjectAge is how old an object is that may be leaked. Most of those of the step that is
	// under way are freed in a moment.
	minObjectAge = 2 * time.Second
)

// Values of --keepers.
const (
	KeepersOn  = "on"
	KeepersOff = "off"
)

// objectWatch counts the objects of the traced processes with Python, and searches who keeps those
// that grow. The work runs in a goroutine of its own, one piece at a time, so that it delays
// neither samples nor snapshots.
type objectWatch struct {
	session session
	done    chan objectWork // of the work under way; nil: there is none
	stop    context.CancelFunc

	counted    []*objects.Census // in the order of time
	nextCensus time.Duration
	halfway    bool // the search at half of the trace is due no more
	lastSearch time.Duration

	// first is the first search that found a keeper, and last the latest that did.
	first, last []keeper.Search
	// atEnd is the CPU time of the last census and search.
	atEnd time.Duration
}

// An objectWork is a census, and a search after it.
type objectWork struct {
	census tracer.CensusOptions
	search *tracer.KeeperSearch // nil: none
	first  *objects.Census      // of the searched process; nil: this is the first
	limit  time.Duration        // of CPU time, of both

	counted  []*objects.Census
	searches []keeper.Search
	err      error
}

// keepsObjects reports whether objects are counted and their keepers searched.
func (o *Options) keepsObjects() bool { return o.Keepers == KeepersOn }

// budget returns the CPU time that censuses and searches may take now.
func (w *objectWatch) budget(o overhead.Overhead) time.Duration {
	limit := o.OwnLimit()
	if limit == 0 {
		return maxSearchTime
	}
	return objectBurst + time.Duration(objectOwnPart*float64(limit)) - w.session.ObjectsCPUTime()
}

// of returns the censuses of a process, as long as it executes the same program.
func (w *objectWatch) of(p *growth.ProcessHistory) (own []*objects.Census) {
	for _, c := range w.counted {
		if c.PID == p.PID && c.Elapsed >= p.First {
			own = append(own, c)
		}
	}
	return own
}

// watchObjects takes the results of work that has ended, and starts the next one that is due. The
// first census follows the first snapshot.
func (r *Recorder) watchObjects() {
	w := &r.objects
	if !r.options.keepsObjects() || len(r.snapshots) == 0 {
		return
	}
	select {
	case work := <-w.done:
		r.take(work)
	default:
	}
	if w.done != nil {
		return
	}

	elapsed := r.session.Elapsed()
	isHalf := r.rechecks == nil && r.End() != 0 && !w.halfway && elapsed-r.began >= (r.End()-r.began)/2
	switch {
	case isHalf:
		w.halfway = true
		r.searchKeepers(mainVerdict(r.judge()))
	case elapsed >= w.nextCensus && w.budget(r.session.Overhead()) > 0:
		r.startObjects(context.Background(), objectWork{})
	}
}

// searchKeepers starts a search for who keeps what a verdict says that grows, unless work is under
// way or there is no budget.
func (r *Recorder) searchKeepers(v ProcessVerdict) {
	work := r.searchFor(v)
	if r.objects.done == nil && work.search != nil && r.objects.budget(r.session.Overhead()) > 0 {
		r.startObjects(context.Background(), work)
	}
}

// searchAgain is searchKeepers for a trace that is judged periodically.
func (r *Recorder) searchAgain(v ProcessVerdict) {
	w, now := &r.objects, r.session.Elapsed()
	gap := time.Duration(float64(searchGap) / r.options.Speed)
	if r.options.keepsObjects() && (w.lastSearch == 0 || now-w.lastSearch >= gap) {
		r.searchKeepers(v)
	}
}

// searchFor returns the work that a verdict calls for: a census alone if nothing grows.
func (r *Recorder) searchFor(v ProcessVerdict) (work objectWork) {
	if v.Process == nil || len(v.Suspects) == 0 && !v.Class.Grows() {
		return work
	}
	work.search = &tracer.KeeperSearch{
		PID: v.Process.PID, Stacks: suspectStacks(v.Suspects), MaxSamples: maxSearchSamples,
		From: v.Window.From, To: r.session.Elapsed() - minObjectAge,
	}
	if own := r.objects.of(v.Process); len(own) > 0 {
		work.first = own[0]
	}
	return work
}

// suspectStacks returns the stacks of the suspects that are searched for.
func suspectStacks(suspects []trend.Suspect) (stacks [][]uint64) {
	for _, s := range suspects[:min(maxSearchedSuspects, len(suspects))] {
		stacks = append(stacks, s.StackIDs)
	}
	return stacks
}

// startObjects starts work with what the budget allows.
func (r *Recorder) startObjects(ctx context.Context, work objectWork) {
	w := &r.objects
	now := r.session.Elapsed()
	work.limit = max(work.limit, objectBurst, w.budget(r.session.Overhead()))
	work.census.Limit = work.limit / 2
	work.census.Samples = maxSearchSamples
	if work.search != nil {
		w.lastSearch = now
	}
	w.nextCensus = max(r.began+2*(now-r.began), now+firstCensusGap)

	ctx, w.stop = context.WithCancel(ctx)
	done := make(chan objectWork, 1)
	w.done = done
	go func() {
		work.do(ctx, w.session)
		done <- work
	}()
}

// do counts and searches.
func (work *objectWork) do(ctx context.Context, of session) {
	before := of.ObjectsCPUTime()
	work.counted, work.err = of.Census(ctx, work.census)
	k := work.search
	if k == nil || ctx.Err() != nil {
		return
	}
	if work.err != nil { // stacks can be searched for without
		slog.Debug("count objects: " + work.err.Error())
	}

	for _, c := range work.counted {
		if c.PID == k.PID && work.first != nil {
			k.Types = grownTypes(work.first, c)
		}
	}
	left := work.limit - (of.ObjectsCPUTime() - before)
	k.Limit = min(max(left, objectBurst), maxSearchTime)
	work.searches, work.err = of.Search(ctx, *k)
}

// grownTypes are the types that grew most between two censuses, with objects that the first did not
// have.
func grownTypes(first, last *objects.Census) (suspects []objects.Suspect) {
	for _, t := range census.Grown(&first.Result, &last.Result) {
		if samples := last.Samples[t.Type]; len(samples) > 0 && len(suspects) < maxSearchedTypes {
			suspects = append(suspects, objects.Suspect{
				Type: t.Type, Objects: samples[:min(len(samples), maxSearchSamples)],
			})
		}
	}
	return suspects
}

// take takes the results of work.
func (r *Recorder) take(work objectWork) {
	w := &r.objects
	w.done = nil
	w.stop()
	if work.err != nil {
		slog.Debug("read objects: " + work.err.Error())
	}

	for _, c := range work.counted {
		slog.Debug(fmt.Sprintf("census of PID %d at %s: %d types, %.0f%% of the memory read, in %s",
			c.PID, units.Duration(c.Elapsed), len(c.Types), 100*c.Share, c.Took))
		if err := r.rows.writeObjects(rows.ObjectRowsOf(&c.Result)); err != nil {
			r.noteWriteError(err)
		}
	}
	w.counted = append(w.counted, work.counted...)

	for i := range work.searches {
		w.countSinceStart(&work.searches[i])
	}
	isFound := func(s keeper.Search) bool { return len(s.Paths) > 0 || s.Garbage > 0 }
	switch {
	case len(work.searches) == 0, w.first != nil && !slices.ContainsFunc(work.searches, isFound):
	case w.first == nil:
		w.first, w.last = work.searches, work.searches
	default:
		keeper.AddGrowth(w.first, work.searches)
		w.last = work.searches
	}
}

// countSinceStart makes the collections of a search those since the first census of its process.
func (w *objectWatch) countSinceStart(s *keeper.Search) {
	for _, c := range w.counted {
		if c.PID == s.PID && c.Collections >= 0 && s.Collections >= c.Collections {
			s.Collections -= c.Collections
			return
		}
	}
	s.Collections = -1
}

// finishObjects counts and searches for the last time, while the process lives and its objects are
// traced.
func (r *Recorder) finishObjects(v ProcessVerdict) {
	w := &r.objects
	if !r.options.keepsObjects() {
		return
	}
	isExited := r.session.Err() != nil
	r.session.HurryObjects()
	if w.done != nil {
		stopping := time.AfterFunc(lastObjectsTimeout, w.stop)
		if isExited {
			w.stop()
		}
		r.take(<-w.done)
		stopping.Stop()
	}
	if isExited || v.Process == nil || len(r.snapshots) == 0 {
		return
	}

	before := r.session.ObjectsCPUTime()
	defer func() { w.atEnd = r.session.ObjectsCPUTime() - before }()
	slow := time.AfterFunc(2*time.Second, func() { slog.Info("searching who keeps what grows") })
	defer slow.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), lastObjectsTimeout)
	defer cancel()
	work := r.searchFor(v)
	work.limit = maxSearchTime // whatever the budget says: the answer is what the trace is for
	r.startObjects(ctx, work)
	r.take(<-w.done)
}

// Keepers returns who keeps what grows, by the latest search that has found any.
func (r *Recorder) Keepers() []keeper.Search { return r.objects.last }

// Censuses returns the census of a process nearest to a baseline, and the last one; nil: there is
// none.
func (r *Recorder) Censuses(
	p *growth.ProcessHistory, baseline time.Duration,
) (before, after *census.Result) {
	if p == nil {
		return nil, nil
	}
	own := r.objects.of(p)
	for i, c := range own {
		if i == len(own)-1 {
			after = &c.Result
		} else if before == nil || (c.Elapsed-baseline).Abs() < (before.Elapsed-baseline).Abs() {
			before = &c.Result
		}
	}
	return before, after
}
