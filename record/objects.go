package record

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// objectBurst is the CPU time that censuses and searches may take in advance.
var objectBurst = duty.Table[duty.Objects].Advance

const (
	// minObjectTime is the least CPU time of a census, and maxObjectTime the most of a census with a
	// search after it.
	minObjectTime = 300 * time.Millisecond
	maxObjectTime = 10 * time.Second
	// minSearchTime is the least CPU time of a search, and sweepTime the most of a second sweep. Later
	// work waits until the budget has them back.
	minSearchTime = 2 * time.Second
	sweepTime     = 2 * time.Second

	// firstCensusGap is the time from the first census to the second. From then on each comes when
	// four times as much time has passed since the start: one of them is near the baseline, wherever it
	// is.
	firstCensusGap = 10 * time.Second
	// firstSearch is how long a trace with a fixed end lasts at most before its first search. A
	// second sweep, sweepGap later, proves its losses.
	firstSearch = 25 * time.Second
	// searchGap is the least time between two searches of a trace without a fixed end.
	searchGap = 5 * time.Minute
	// halfwayTries is how often the first search is tried in half of the trace, until one has been
	// made.
	halfwayTries = 20
	// lastObjectsTimeout is how long the end of a trace waits for censuses and searches, and
	// interruptedTimeout after a signal.
	lastObjectsTimeout = time.Minute
	interruptedTimeout = 10 * time.Second
	// The last search of a trace begins before its end, so that the answer stands soon after: at least
	// minLead before, and at most a part of the trace before.
	minLead, maxLeadPart = 2 * time.Second, 0.25
	// minGained is how many entries a container has to gain between two readings within seconds.
	minGained = 10
	// slowSearch is how long the end waits before it says so.
	slowSearch = 2 * time.Second
	// minTraced is the length of a trace from which on its end waits for them: in less nothing can be
	// seen to grow.
	minTraced = 5 * time.Second
)

// Bounds on a search.
const (
	maxSearchedSuspects = 4  // of stacks
	maxSearchedTypes    = 5  // that grow
	maxNearestTypes     = 2  // of them, those that a user knows best
	maxSearchSamples    = 16 // objects of each
	// minObjectAge is how old an object is that may be leaked. Most objects of the present step are
	// freed in a moment.
	minObjectAge = 2 * time.Second
)

// objectWatch counts the objects of the traced processes with Python, and searches who keeps those
// that grow. The work runs in a goroutine of its own, one piece at a time, so that samples and
// snapshots do not wait for it.
type objectWatch struct {
	session Session
	options *Options
	report  func(Event)
	began   time.Duration // as Recorder.began
	end     *Deadline
	rows    *rowFiles
	files   *Files

	done chan objectWork // of the work under way; nil: there is none
	stop context.CancelFunc

	counted     []*objects.Census // in the order of time
	nextCensus  time.Duration
	nextHalfway time.Duration // the first search is not tried before
	lastSearch  time.Duration // when one was started; 0: none was
	isSearched  bool          // one has had an answer about the first suspect
	took, pass  time.Duration // by the clock: of the latest work, of reading all memory once; see lead
	last        lastWork

	// first has the earliest search of each suspect that found a keeper, and latest the latest
	// answers.
	first, latest []keeper.Search
	earlier       []keeper.Search // of the trace that this one continues
	sweeps        sweeps
	atEnd         time.Duration // CPU time of the last census and search
}

// A lastWork is the last censuses of a trace, and the last search, which begin before its end.
type lastWork struct {
	at     time.Duration        // when they were started; 0: they were not
	end    time.Duration        // of the trace, as it was then: it may have been extended since
	search *tracer.KeeperSearch // nil: there was none
}

// An objectWork is censuses, and a search.
type objectWork struct {
	pids   []int                // to count, in this order; empty: there is a search alone
	search *tracer.KeeperSearch // of the first of them; nil: none
	first  *objects.Census      // of the searched process; nil: this is the first
	limit  time.Duration        // of CPU time, of all
	began  time.Duration
	pass   time.Duration // by the clock, of reading all memory of the first process once

	counted  []*objects.Census
	searches []keeper.Search
	err      error
}

// budget returns the CPU time that censuses and searches may take now.
func (w *objectWatch) budget(o overhead.Overhead) time.Duration {
	if o.OwnLimit() == 0 {
		return maxObjectTime
	}
	earned := time.Duration(o.Use().Share(duty.Objects) * float64(o.Elapsed))
	return objectBurst + earned - w.session.ObjectsCPUTime()
}

// of returns the censuses of a process, as long as it executes the same program.
func (w *objectWatch) of(p *growth.ProcessHistory) (own []*objects.Census) {
	for _, c := range w.counted {
		if p.Had(c.PID, c.Elapsed) {
			own = append(own, c)
		}
	}
	return own
}

// watch takes the results of work that has ended, and starts the next one that is due. The first
// census follows the first snapshot.
func (w *objectWatch) watch(recorded func() *conclude.Trace) {
	if !w.options.Keepers {
		return
	}
	select {
	case work := <-w.done:
		w.take(work)
	default:
	}
	if w.done != nil {
		return
	}

	elapsed, end := w.session.Elapsed(), w.end.At()
	length := end - w.began
	wait := min(length/2, time.Duration(float64(firstSearch)/w.options.Speed))
	isFirst := !w.options.isRechecked() && end != 0 && !w.isSearched && elapsed >= w.began+wait
	if w.sweepAgain(); w.done != nil {
		return
	}
	switch {
	case end != 0 && w.last.end != end && elapsed >= end-w.lead(length):
		t := recorded()
		work := w.searchFor(t, conclude.MainOf(t.Judge()))
		w.last = lastWork{elapsed, end, work.search}
		work.limit = maxObjectTime
		w.start(context.Background(), t.History.Main(), work)
	case isFirst && elapsed >= w.nextHalfway && w.budget(w.session.Overhead()) > 0:
		w.nextHalfway = elapsed + length/2/halfwayTries
		t := recorded()
		w.searchKeepers(t, conclude.MainOf(t.Judge()), 0)
	case elapsed >= w.nextCensus && w.budget(w.session.Overhead()) > 0:
		w.start(context.Background(), recorded().History.Main(), objectWork{})
	}
}

// lead returns how long before the end of a trace of a length its last search begins. A census with a
// search takes two to three times as long as a census alone.
func (w *objectWatch) lead(length time.Duration) time.Duration {
	likely := w.took * 3 / 2
	if w.lastSearch == 0 {
		likely *= 2
	}
	likely = max(likely, min(w.pass*5/2, maxObjectTime))
	return min(max(minLead, likely), time.Duration(maxLeadPart*float64(length)))
}

// searchKeepers starts a search for who keeps the memory that grows by a verdict, unless work is
// under way or there is no budget. It may take a limit of CPU time; 0: the budget decides.
func (w *objectWatch) searchKeepers(
	t *conclude.Trace, p conclude.Process, limit time.Duration,
) {
	work := w.searchFor(t, p)
	work.limit = limit
	isAllowed := limit > 0 || w.budget(w.session.Overhead()) > 0
	if w.done == nil && work.search != nil && isAllowed {
		w.start(context.Background(), t.History.Main(), work)
	}
}

// searchAgain is searchKeepers for a trace that is judged periodically. A command takes its objects
// along when it ends, so that the first search in it gets the time of a last one.
func (w *objectWatch) searchAgain(t *conclude.Trace, p conclude.Process) {
	now, gap := w.session.Elapsed(), time.Duration(float64(searchGap)/w.options.Speed)
	isFirst := w.lastSearch == 0
	if !w.options.Keepers || !isFirst && now-w.lastSearch < gap {
		return
	}

	var limit time.Duration
	if isFirst && w.options.Launched {
		limit = maxObjectTime
	}
	w.searchKeepers(t, p, limit)
}

// searchFor returns the work that a verdict calls for: a census alone if neither RSS nor the
// tensors' memory on GPUs grows.
func (w *objectWatch) searchFor(t *conclude.Trace, p conclude.Process) (work objectWork) {
	if p.History == nil {
		return work
	}
	if len(p.Suspects) == 0 && !p.Class.Grows() {
		t.JudgeGPU(&p)
		if p.GPU == nil || !p.GPU.Diagnosis.IsOfTorch() {
			return work
		}
		p.Window = p.GPU.Window
	}
	work.search = &tracer.KeeperSearch{
		PID: p.History.PID, Stacks: suspectStacks(p.Suspects), MaxSamples: maxSearchSamples,
		From: p.Window.From, To: w.session.Elapsed() - minObjectAge,
	}
	if own := w.of(p.History); len(own) > 0 {
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

// start starts work. The process that is searched comes first, else the main one; nil: there is none.
func (w *objectWatch) start(ctx context.Context, main *growth.ProcessHistory, work objectWork) {
	now := w.session.Elapsed()
	if work.search != nil {
		w.lastSearch = now
		work.search.Again = w.sweeps.due(work.search.PID, now, keeper.MinSweepGap)
	}
	w.nextCensus = max(w.began+4*(now-w.began), now+firstCensusGap)

	work.pids = w.session.TracedPIDs()
	first := 0
	if work.search != nil {
		first = work.search.PID
	} else if main != nil {
		first = main.PID
	}
	if i := slices.Index(work.pids, first); i > 0 {
		work.pids = slices.Insert(slices.Delete(work.pids, i, i+1), 0, first)
	}

	w.begin(ctx, work)
}

// begin has a goroutine do work, with the CPU time that the budget allows, unless the work has its
// own limit.
func (w *objectWatch) begin(ctx context.Context, work objectWork) {
	if work.limit == 0 {
		left := w.budget(w.session.Overhead())
		work.limit = min(max(left, minObjectTime), maxObjectTime)
	}
	ctx, w.stop = context.WithCancel(ctx)
	work.began = w.session.Elapsed()
	done := make(chan objectWork, 1)
	w.done = done
	go func() {
		work.do(ctx, w.session)
		done <- work
	}()
}

// do counts the objects of the first process, searches in it, and counts the objects of the others
// with the rest of the limit.
func (work *objectWork) do(ctx context.Context, of Session) {
	before := of.ObjectsCPUTime()
	left := func() time.Duration { return work.limit - (of.ObjectsCPUTime() - before) }

	if work.search != nil && len(work.pids) == 0 {
		work.search.Limit = work.limit
		work.searches, work.err = of.Search(ctx, *work.search)
		return
	}

	for i, pid := range work.pids {
		if ctx.Err() != nil || i > 0 && left() <= 0 {
			return
		}
		pieces := time.Duration(len(work.pids) - i)
		if i == 0 && work.search != nil {
			pieces = 3
		}
		began := of.Elapsed()
		counted, err := of.Census(ctx, tracer.CensusOptions{
			PID: pid, Limit: left() / pieces, Samples: maxSearchSamples,
		})
		if counted != nil {
			work.counted = append(work.counted, counted)
		}
		if i == 0 && counted != nil && counted.Share > 0 {
			work.pass = time.Duration(float64(of.Elapsed()-began) / counted.Share)
		}
		if !errors.Is(err, objects.ErrNoPython) {
			work.err = errors.Join(work.err, err)
		}

		if k := work.search; i == 0 && k != nil && k.PID == pid && ctx.Err() == nil {
			if counted != nil && work.first != nil {
				k.Types = grownTypes(work.first, counted)
			}
			k.Limit = max(left(), minSearchTime)
			work.searches, err = of.Search(ctx, *k) // stacks can be searched for without a census
			work.setAges(counted)
			work.err = errors.Join(work.err, err)
		}
	}
}

// setAges sets between which censuses the objects of types were allocated.
func (work *objectWork) setAges(last *objects.Census) {
	for i := range work.searches {
		if s := &work.searches[i]; s.Stack == 0 && work.first != nil && last != nil {
			s.Ages = keeper.Ages{
				First: work.first.Elapsed, Last: last.Elapsed,
				Since: work.first.Elapsed, Until: last.Elapsed,
			}
			s.Count = grownBy(work.first, last, s.Type)
		}
	}
}

// grownBy returns how many more objects of a type a census has at least than an earlier one.
func grownBy(first, last *objects.Census, name string) float64 {
	for _, t := range census.Grown(&first.Result, &last.Result) {
		if t.Type == name {
			return t.Low * (last.Elapsed - first.Elapsed).Minutes()
		}
	}
	return 0
}

// grownTypes are types that grow between two censuses, with objects that the first did not have:
// the types that a user knows come first, as fewer references lead from a variable to them, and then
// the types with most bytes.
func grownTypes(first, last *objects.Census) (suspects []objects.Suspect) {
	grown := census.Grown(&first.Result, &last.Result)
	nearest := census.Nearest(grown)
	for _, t := range slices.Concat(nearest[:min(maxNearestTypes, len(nearest))], grown) {
		samples := last.Samples[t.Type]
		isKnown := slices.ContainsFunc(suspects,
			func(s objects.Suspect) bool { return s.Type == t.Type })
		if len(samples) > 0 && !isKnown && len(suspects) < maxSearchedTypes {
			suspects = append(suspects, objects.Suspect{
				Type: t.Type, Objects: samples[:min(len(samples), maxSearchSamples)],
			})
		}
	}
	return suspects
}

// take takes the results of work.
func (w *objectWatch) take(work objectWork) {
	w.done = nil
	w.stop()
	w.report(ObjectsRead{work.counted, work.err})
	for _, c := range work.counted {
		if err := w.rows.writeObjects(rows.ObjectRowsOf(&c.Result)); err != nil {
			w.files.note(err)
		}
	}
	w.counted = append(w.counted, work.counted...)
	if work.search != nil {
		w.takeAgain(&work)
	}
	if len(work.pids) > 0 {
		w.took = w.session.Elapsed() - work.began
		w.pass = cmp.Or(work.pass, w.pass)
	}

	w.isSearched = w.isSearched || len(work.searches) > 0 && work.searches[0].IsAnswer()
	for i := range work.searches {
		w.countSinceFirst(&work.searches[i])
		work.searches[i].DropOldGarbage()
	}
	keeper.AddGrowth(w.first, work.searches)
	keeper.AddEarlier(w.earlier, work.searches)
	w.first = keeper.AddFirst(w.first, work.searches)
	var stacks [][]uint64
	if work.search != nil {
		stacks = work.search.Stacks
	}
	w.sweeps.add(work.searches)
	w.latest = w.sweeps.addProofs(keeper.Update(w.latest, work.searches, stacks))
}

// takeAgain takes the second sweeps of work off its searches, and reports their proofs. The
// session returns these last.
func (w *objectWatch) takeAgain(work *objectWork) {
	n := len(work.searches) - len(work.search.Again)
	if n < 0 {
		return
	}
	for _, s := range w.sweeps.addAgain(work.searches[n:]) {
		w.report(LossProven{s})
	}
	work.searches = work.searches[:n]
}

// countSinceFirst makes the collections of a search those since the first census of its program.
func (w *objectWatch) countSinceFirst(s *keeper.Search) {
	for _, c := range w.counted {
		if c.PID == s.PID && c.Elapsed >= s.TracedSince && c.Collections >= 0 &&
			s.Collections >= c.Collections {
			s.Collections -= c.Collections
			s.CollectionsTime = s.Elapsed - c.Elapsed
			return
		}
	}
	s.Collections = -1
}

// finish searches and counts for the last time, while the process lives and its objects are
// traced. It ends early with ctx.
func (w *objectWatch) finish(
	ctx context.Context, t *conclude.Trace, p conclude.Process, ended string,
) {
	if !w.options.Keepers || w.session.Elapsed()-w.began < minTraced {
		return
	}
	timeout := lastObjectsTimeout
	if ended == summary.EndedInterrupt {
		timeout = interruptedTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	slow := time.NewTimer(slowSearch)
	defer slow.Stop()

	isExited := w.session.Err() != nil
	w.session.HurryObjects()
	if w.done != nil { // half of the time is for the last search
		old, cancelOld := context.WithTimeout(ctx, timeout/2)
		if isExited {
			cancelOld()
		}
		context.AfterFunc(old, w.stop)
		w.await(slow)
		cancelOld()
	}
	wasLast := w.last.end == w.end.At() && w.last.at != 0
	for i := range w.latest {
		w.latest[i].IsEarlier = !wasLast || w.latest[i].Elapsed < w.last.at
	}
	if isExited || p.History == nil || len(t.Snapshots) == 0 || ctx.Err() != nil {
		return
	}

	before := w.session.ObjectsCPUTime()
	defer func() { w.atEnd = w.session.ObjectsCPUTime() - before }()
	switch work := w.searchFor(t, p); {
	case !wasLast || work.search != nil && !w.last.has(work.search.PID):
		work.limit = maxObjectTime // whatever the budget says: the trace is for the answer
		w.start(ctx, t.History.Main(), work)
		w.await(slow)
	case w.leaveOutSearched(&work):
		work.limit = minSearchTime
		w.begin(ctx, work)
		w.await(slow)
	}
	w.reread(ctx, p.History)
}

// reread reads the containers of the last answers once more, where there is no earlier reading by which
// they grow.
func (w *objectWatch) reread(ctx context.Context, p *growth.ProcessHistory) {
	var once []keeper.Search
	for _, s := range w.latest {
		hasGrowth := slices.ContainsFunc(s.Paths, func(p keeper.Path) bool {
			return slices.ContainsFunc(p.Links, func(l keeper.Link) bool { return l.GrowthS > 0 })
		})
		if s.PID == p.PID && !s.IsEarlier && len(s.Paths) > 0 && !hasGrowth {
			once = append(once, s)
		}
	}
	if len(once) == 0 || ctx.Err() != nil {
		return
	}
	again, err := w.session.Search(ctx, tracer.KeeperSearch{PID: p.PID, Reread: once})
	if err != nil {
		w.report(ObjectsRead{nil, err})
		return
	}
	keeper.AddGrowth(once, again)
	again = slices.DeleteFunc(again, func(s keeper.Search) bool { return !hasGained(&s) })
	w.latest = w.sweeps.addProofs(keeper.Update(w.latest, again, nil))
}

// hasGained reports whether a container on a path has gained as many entries as show how fast it grows.
func hasGained(s *keeper.Search) bool {
	return slices.ContainsFunc(s.Paths, func(p keeper.Path) bool {
		at := p.GrowingLink()
		return at >= 0 && p.Links[at].PerMinute*p.Links[at].GrowthS/60 >= minGained
	})
}

// has reports whether a process was searched.
func (l *lastWork) has(pid int) bool { return l.search != nil && l.search.PID == pid }

// leaveOutSearched takes the suspects off work that the last search has had before the end; false:
// nothing is left to do.
func (w *objectWatch) leaveOutSearched(work *objectWork) bool {
	if work.search == nil {
		return false // all is counted
	}
	had := make(map[uint64]bool)
	for _, ids := range w.last.search.Stacks {
		had[ids[0]] = true
	}
	for _, s := range w.latest {
		had[s.Stack] = had[s.Stack] || s.PID == work.search.PID && !s.IsEarlier
	}
	work.search.Stacks = slices.DeleteFunc(work.search.Stacks, func(ids []uint64) bool {
		return slices.ContainsFunc(ids, func(id uint64) bool { return had[id] })
	})
	return len(work.search.Stacks) > 0
}

// await waits for the results of the work under way, and takes them.
func (w *objectWatch) await(slow *time.Timer) {
	select {
	case work := <-w.done:
		w.take(work)
	case <-slow.C:
		w.report(SlowSearch{})
		w.take(<-w.done)
	}
}
