package record

import (
	"time"

	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// checks are the periodic judgements of a trace, with their results.
type checks struct {
	report  func(Event)
	rss     *verdict.Rechecks // nil: judged once, at the end
	gpu     *verdict.Rechecks // of GPU memory, at the same times
	warned  verdict.Class     // of the last check; empty: the limit was far
	settled bool              // with --until-settled: nothing more is to be learned
}

func newChecks(o *Options, report func(Event)) checks {
	if !o.isRechecked() {
		return checks{}
	}
	return checks{
		report: report,
		rss:    verdict.NewRechecks(o.firstCheck()), gpu: verdict.NewRechecks(o.firstCheck()),
	}
}

// maxTimeToLimitWarning is how near the memory limit must be for a warning before a leak is
// certain.
const maxTimeToLimitWarning = time.Hour

// addRSS counts a check, and reports its result: a leak when enough checks agree, and at once
// growth that fills the memory soon.
func (c *checks) addRSS(p conclude.Process) {
	raised := c.rss.Add(p.Verdict)
	nearLimit := verdict.Class("")
	if p.ToLimit < maxTimeToLimitWarning.Seconds() {
		nearLimit = p.Class
	}

	switch {
	case raised:
		c.report(LeakFound{Process: p})
	case nearLimit != "" && nearLimit != c.warned:
		c.report(LimitNear{p})
	}

	c.warned = nearLimit
}

// addGPU counts a check of GPU memory, and raises the alarm when enough of them have found a leak.
func (c *checks) addGPU(all []conclude.Process) {
	worst := conclude.WorstGPU(all)
	if worst == nil || !c.gpu.Add(worst.GPU.Verdict) {
		return
	}
	c.report(LeakFound{*worst, true})
}

// addLast counts the judgements at the end of a trace as checks.
func (c *checks) addLast(all []conclude.Process) {
	if c.rss == nil {
		return
	}
	c.rss.Add(conclude.MainOf(all).Verdict)
	if worst := conclude.WorstGPU(all); worst != nil {
		c.gpu.Add(worst.GPU.Verdict)
	}
}

// settle ends a trace whose verdicts on RSS and on GPU memory are settled: a longer one would not
// change them. Otherwise it reports when the trace is judged next.
func (c *checks) settle(t *conclude.Trace, all []conclude.Process, end time.Duration) {
	c.settled = true
	for i := range all {
		t.AddChecks(&all[i])
		c.settled = c.settled && (all[i].GPU == nil || all[i].GPU.Longer == 0)
	}
	main := conclude.MainOf(all)
	c.settled = c.settled && main.Longer == 0

	if c.settled {
		c.report(Settled{main})
		return
	}
	next := t.Began + time.Duration(c.rss.Next()*float64(time.Second))
	c.report(Unsettled{main, next, end})
}
