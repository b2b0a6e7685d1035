package fleet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	// settleTime is how old a process must be to be compared with the rules.
	settleTime = 2 * time.Second
	// waitingRounds is how many scans it takes to read all processes again that are too small yet.
	waitingRounds = 4
	// stalledFor is how long the processes of a user are left alone of whom one has not answered.
	stalledFor = time.Hour
)

// A finder finds processes that match the rules. It is used by one goroutine.
type finder struct {
	rules    []matcher
	minRSS   int64
	arrivals *tree.Arrivals
	self     int

	// waiting are processes that are too small yet, or one too many.
	waiting map[int]*waiting
	round   int
	// stalled has the users of processes that did not answer, and until when.
	stalled map[uint32]time.Time
}

func newFinder(rules []matcher, minRSS int64, speed float64) *finder {
	settle := time.Duration(float64(settleTime) / speed)
	return &finder{
		rules: rules, minRSS: minRSS, arrivals: tree.NewArrivals(settle), self: os.Getpid(),
		waiting: make(map[int]*waiting), stalled: make(map[uint32]time.Time),
	}
}

// A candidate is a process that a rule matches.
type candidate struct {
	tree.Arrival
	process  *process.Process
	identity growth.Identity
	labels   map[string]string // of its profiles
}

// A waiting process may be watched later. It is ignored if a rule matches it, and there was no room.
type waiting struct {
	tree.Arrival
	round   int // in which it came
	ignored bool
}

// scan returns the processes that match and are not watched, at most room; the caller closes them.
// ignored is how many match beyond that.
func (f *finder) scan(
	isWatched func(tree.Arrival) bool, room int,
) (found []candidate, ignored int, err error) {
	arrived, err := f.arrivals.Scan()
	if err != nil {
		return nil, 0, err
	}

	f.round++
	for _, a := range arrived {
		f.waiting[a.PID] = &waiting{Arrival: a, round: f.round}
	}

	for _, pid := range slices.Sorted(maps.Keys(f.waiting)) {
		w := f.waiting[pid]
		if w.round != f.round && (pid+f.round)%waitingRounds != 0 {
			continue
		}
		rss := w.RSS()
		switch {
		case rss == growth.Unknown || isWatched(w.Arrival):
			delete(f.waiting, pid)
			continue
		case rss < f.minRSS || w.ignored && len(found) == room:
			continue
		}

		c, err := f.match(w.Arrival)
		switch {
		case errors.Is(err, errLater):
		case err != nil:
			delete(f.waiting, pid)
		case len(found) == room:
			w.ignored = true
			c.process.Close()
		default:
			delete(f.waiting, pid)
			found = append(found, c)
		}
	}

	for _, w := range f.waiting {
		if w.ignored {
			ignored++
		}
	}

	return found, ignored, nil
}

// later has a process found again in a later round.
func (f *finder) later(c candidate) {
	c.process.Close()
	f.waiting[c.PID] = &waiting{Arrival: c.Arrival, round: f.round}
}

// Why a process is not watched: no rule matches it, or it may be compared with them later.
var (
	errNoMatch = errors.New("no rule matches it")
	errLater   = errors.New("a process of its user has not answered")
)

// match compares a process with the rules, the cheapest evidence first.
func (f *finder) match(a tree.Arrival) (c candidate, err error) {
	var owner unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", a.PID), &owner); err != nil {
		return c, err
	}

	rules := f.rulesOf(owner.Uid)
	switch {
	case len(rules) == 0 || a.PID == f.self:
		return c, errNoMatch
	case time.Now().Before(f.stalled[owner.Uid]):
		return c, errLater
	}

	p, err := process.OpenAny(a.PID)
	if err != nil {
		return c, err
	}

	rule := firstMatch(p, rules, owner.Uid)
	if p.Stalled() != nil {
		f.stalled[owner.Uid] = time.Now().Add(stalledFor)
	}

	stat, err := p.Stat()
	if rule == nil || err != nil || stat.StartTicks != a.StartTicks {
		p.Close()
		return c, errNoMatch
	}

	identity := tree.IdentityAmongAll(p)
	if !rule.mayTrain(identity.Role, tree.IsPython(p.Arguments)) {
		p.Close()
		return c, errNoMatch
	}

	labels := maps.Clone(rule.Labels)
	if identity.Job == "" && rule.Job != "" {
		identity.Job = rule.Job
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[jobLabel] = rule.Job
	}

	a.Stat = stat
	return candidate{a, p, identity, labels}, nil
}

// jobLabel is the label of the job ID. A trace does not know that of a rule.
const jobLabel = "job_id"

// rulesOf are the rules that may match a process of a user.
func (f *finder) rulesOf(uid uint32) (rules []*matcher) {
	for i := range f.rules {
		if r := &f.rules[i]; r.user == anyUser || r.user == int(uid) {
			rules = append(rules, r)
		}
	}

	return rules
}

// ownName begins the names by which allocscope calls its processes.
const ownName = "allocscope"

// firstMatch returns the first rule that a process matches; nil: none, or it is allocscope.
func firstMatch(p *process.Process, rules []*matcher, uid uint32) *matcher {
	if len(p.Arguments) > 0 && strings.HasPrefix(filepath.Base(p.Arguments[0]), ownName) {
		return nil
	}

	for _, r := range rules {
		if r.matches(p, uid) {
			return r
		}
	}

	return nil
}
