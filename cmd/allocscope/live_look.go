package main

import (
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/live"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

const (
	firstGlance = 10 * time.Second // of a trace, until it is judged first
	// restAfter a glance, in times of what it took: it may cost a fiftieth of a core.
	restAfter = 50
)

// provisional is what the live screen says of a trace that has not ended. It looks on its own: neither the judgement at the end nor the
// alarm knows of it.
type provisional struct {
	r       *recorder
	looks   *growth.Looks
	free    time.Time // before that it rests
	found   judged
	at      time.Duration // of the last look, or when the first is due
	verdict *summary.Verdict
	blame   string
	device  deviceLook // of its memory on GPUs

	latest *growth.Snapshot // that stacks and ledger are of
	seen   seen
}

// seen is what the screen shows of two snapshots.
type seen struct {
	since  time.Duration
	warm   bool
	stacks []live.Stack
	// deviceStacks are those that hold memory on GPUs.
	deviceStacks []live.Stack
	book         words.Breakdown
	resident     summary.Resident
}

func newProvisional(r *recorder) *provisional {
	first := time.Duration(float64(firstGlance) / r.flags.pace)
	return &provisional{r: r, looks: growth.NewLooks(growth.Criteria{MinFlat: first.Seconds()}), at: first}
}

// glance judges the main process where that is due.
func (p *provisional) glance() {
	elapsed, main := p.r.session.Elapsed(), p.r.history.Main()
	if main == nil || time.Now().Before(p.free) || !p.looks.Due(elapsed.Seconds()) {
		return
	}
	began := time.Now()
	p.found = judged{main, growth.JudgeProcess(p.r.caseOf(main))}
	p.at = elapsed
	v := summary.VerdictOf(p.unconfirmed(), summary.AxisSeconds)
	p.verdict, p.blame = &v, blameOf(p.found.Culprits)
	if j, known := growth.JudgeDevice(p.r.caseOf(main)); known {
		p.device.take(j.Verdict, j.Advice(), j.Culprits)
	}
	p.latest = nil
	p.free = time.Now().Add(restAfter * time.Since(began))
}

// unconfirmed is the verdict, which is no leak yet where several looks have to agree and have not.
func (p *provisional) unconfirmed() growth.Verdict {
	v := p.found.Verdict
	if p.r.looks == nil || v.Class != growth.ClassLeak {
		return v
	}
	if agree, of := p.r.looks.Agreeing(); agree < of {
		v.Class = growth.ClassSuspected
	}
	return v
}

// compare compares the latest snapshot with the one from which growth counts, if it has not yet done so.
func (p *provisional) compare() {
	latest := p.r.latest()
	if latest == nil || latest == p.latest || time.Now().Before(p.free) {
		return
	}
	began := time.Now()
	p.latest = latest
	found := p.found
	if found.track == nil {
		found.track = p.r.history.Main()
	}
	counted := p.r.choose(found)
	looked := p.r.lookedAt(found.track, counted)
	pid := p.r.processOf(found.track).PID
	p.seen = seen{since: counted.start.Elapsed, warm: isWarm(found), stacks: stacksOf(counted, p.r.flags.owners.rules)}
	p.seen.deviceStacks = stacksOf(span{onDevices(counted.start, pid), onDevices(counted.end, pid)}, p.r.flags.owners.rules)
	p.seen.book = words.BreakdownOf(summary.BreakdownOf(growth.Ledger(looked.start, looked.end), rowsOfAKind), pid)
	p.seen.resident = words.ResidentOf(&summary.Summary{
		Process: summary.Process{PID: pid}, Residents: summary.ResidentsOf(looked.start.Residents, looked.end.Residents),
	})
	p.free = time.Now().Add(restAfter * time.Since(began))
}

// isWarm tells whether growth counts from the end of a warm-up that was seen.
func isWarm(f judged) bool { return f.From > 0 && f.Window.From > 0 }
