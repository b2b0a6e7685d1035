package fleet

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

// A processKey distinguishes all processes since the boot.
type processKey struct {
	pid   int
	start int64 // as growth.Process.Start
}

// A watched process. Its process, key and limits belong to the goroutine that samples; everything
// else is guarded by Agent.mu.
type watchedProcess struct {
	key     processKey
	process *process.Process
	limits  *process.SystemMemoryReader
	start   time.Duration // since the boot
	image   process.Image

	arrival tree.Arrival
	owner   string // of its place
	// replaced: another process has its place. The goroutine that samples removes it.
	replaced bool

	identity growth.Identity
	command  string
	labels   map[string]string // of the rule

	history  history
	last     growth.Sample
	headroom growth.Headroom
	rechecks *verdict.Rechecks
	// nextJudgement is the length of the history at which it is judged again.
	nextJudgement float64
	// verdict of the last judgement. Its class is a leak only where enough checks agree.
	verdict verdict.Verdict
	// alarmed: it was a leak, suspected or not, and has not stopped growing since. reported is the
	// class that was reported last.
	alarmed  bool
	reported verdict.Class
	// nearLimit counts the judgements in a row by which a limit will be met soon.
	nearLimit int
	// use of the limit that it meets first. isFull: it is nearly used up.
	use    limitUse
	isFull bool

	// wantsTrace: a trace is due as soon as it is allowed. wasRefused: it was put off, and that is
	// reported.
	wantsTrace, wasRefused bool
	// tracedAt is when its last trace began; zero: never. folder is the name of its folder, and trace
	// its result.
	tracedAt time.Time
	folder   string
	trace    *metrics.Trace
}

// A watchList has the watched processes.
type watchList []*watchedProcess

const (
	// recheckFactor is by how much longer a history is at the next judgement, until
	// longestJudgement.
	recheckFactor    = 1.25
	longestJudgement = 5 * time.Minute
	// longestCheck is the longest time between two checks that count towards a leak: the shortest
	// segment of a leak is as long, so that they see different samples.
	longestCheck = time.Hour
	// nearLimitTime is how near a limit must be for a trace of growth that is no leak yet, in
	// nearLimitChecks judgements in a row.
	nearLimitTime   = time.Hour
	nearLimitChecks = 2
)

// begin resets the findings on the program that the process executed before.
func (w *watchedProcess) begin(born float64, criteria verdict.Criteria, speed float64) {
	w.history = history{born: born}
	w.rechecks = verdict.NewRechecks(criteria)
	w.rechecks.Longest = longestCheck.Seconds() / speed
	w.nextJudgement = criteria.MinPlateauLength
	w.verdict = verdict.Unjudged(verdict.Series{}, criteria)
	w.alarmed, w.reported = false, w.verdict.Class
	w.nearLimit, w.wantsTrace, w.wasRefused = 0, false, false
	w.use, w.isFull = limitUse{}, false
	w.headroom = growth.Headroom{}
}

// A statusChange is how a judgement changes the status of a process.
type statusChange struct {
	before verdict.Class // that was reported last
	// isNewStatus: a leak is suspected or confirmed, or the process has stopped growing since.
	// isNearLimit: its limit has come near.
	isNewStatus, isNearLimit bool
}

// isAlarming is true of classes for which a process is traced.
func isAlarming(c verdict.Class) bool {
	return c == verdict.ClassLeak || c == verdict.ClassSuspected
}

// isDue reports whether the process is to be judged.
func (w *watchedProcess) isDue() bool { return w.history.length() >= w.nextJudgement }

// judge takes over a verdict on the history as it is, and the findings besides it.
func (w *watchedProcess) judge(judged verdict.Verdict, found verdict.Findings, speed float64) statusChange {
	length := w.history.length()
	w.nextJudgement = min(recheckFactor*length, length+longestJudgement.Seconds()/speed)
	if w.rechecks.Due(length) {
		w.rechecks.Add(verdict.Decide(judged, found))
	}

	w.rechecks.AddTo(&found, length)
	v := verdict.Decide(judged, found)
	class := v.Class
	w.verdict = v

	change := statusChange{before: w.reported}
	begins := isAlarming(class) && !w.alarmed
	ends := w.alarmed && !class.Grows()
	if begins || ends || class == verdict.ClassLeak && w.reported != class {
		w.alarmed, w.reported, change.isNewStatus = isAlarming(class), class, true
	}

	if class.Grows() && v.ToLimit < nearLimitTime.Seconds()/speed {
		w.nearLimit++
		change.isNearLimit = w.nearLimit == nearLimitChecks
	} else {
		w.nearLimit = 0
	}

	if begins || change.isNearLimit {
		w.wantsTrace, w.wasRefused = true, false
	}

	w.wantsTrace = w.wantsTrace && w.mattersNow()
	return change
}

// mattersNow reports whether a trace that was not possible is wanted still.
func (w *watchedProcess) mattersNow() bool {
	return w.alarmed || w.nearLimit >= nearLimitChecks || w.isFull
}

// urgency orders the processes that are to be traced: the more urgent, the less. Where limits are
// nearly used up, the largest process comes first.
func (w *watchedProcess) urgency() float64 {
	if w.isFull {
		return -float64(w.use.private)
	}
	if !math.IsNaN(w.verdict.ToLimit) {
		return w.verdict.ToLimit
	}

	return math.MaxFloat64 / float64(1+w.verdict.Class.Severity())
}

// state is the process as metrics have it.
func (w *watchedProcess) state() metrics.Process {
	v := &w.verdict
	p := metrics.Process{
		Job: w.identity.Job, Rank: w.identity.Rank, Role: w.identity.Role, Count: 1,
		PID: w.key.pid, Command: w.command,
		RSS: w.last.RSS, Anonymous: w.last.Anonymous, File: w.last.File, Shmem: w.last.Shared,
		Swap: w.last.Swap, Headroom: w.headroom, Verdict: v.Class,
		Growth: v.Rate, GrowthLow: v.RateLow, GrowthHigh: v.RateHigh,
		ToLimit: v.ToLimit, Trace: w.trace,
	}

	settled := v.Class != verdict.ClassTooShort && !v.Class.Grows()
	if math.IsNaN(p.ToLimit) && settled && w.headroom.Of != "" {
		p.ToLimit = math.Inf(1)
	}

	return p
}

// event is an event about the process.
func (w *watchedProcess) event(kind EventKind) Event {
	return Event{
		Kind: kind, PID: w.key.pid, Identity: w.identity, Command: w.command, RSS: w.last.RSS,
		Verdict: w.verdict, Used: w.use.used, Limit: w.use.limit, Headroom: w.headroom,
	}
}
