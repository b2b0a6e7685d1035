package fleet

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	// settleTime is how old a process must be to be compared with the rules.
	settleTime = 2 * time.Second
	// waitingRounds is how many scans it takes to read all processes again that are too small yet.
	waitingRounds = 4
	// scanShare is how long a scan waits for the processes of an owner; the rest is for later scans.
	// If a single process takes as long, all are left alone for restFactor times that: for an hour,
	// if it does not answer.
	scanShare  = 2 * time.Second
	restFactor = 120
)

// A finder finds processes that match the rules. It is used by one goroutine.
type finder struct {
	rules    []matcher
	minRSS   int64
	arrivals *tree.Arrivals
	self     int
	own      *hostile.File // the program of allocscope; nil: it cannot be opened
	open     func(pid int) (*process.Process, error)

	// waiting are processes that are too small yet, or one too many.
	waiting map[int]*waitingProcess
	round   int
	// share is scanShare. resting are the owners who are left alone, and until when.
	share   time.Duration
	resting map[string]time.Time
}

func newFinder(rules []matcher, minRSS int64, speed float64) *finder {
	settle := time.Duration(float64(settleTime) / speed)
	return &finder{
		rules: rules, minRSS: minRSS, arrivals: tree.NewArrivals(settle), open: process.OpenAny,
		self:    os.Getpid(),
		waiting: make(map[int]*waitingProcess), share: scanShare, resting: make(map[string]time.Time),
	}
}

// A candidate is a process that a rule matches.
type candidate struct {
	tree.Arrival
	process  *process.Process
	owner    string
	identity growth.Identity
	labels   map[string]string // of its profiles
	// replaces is the process whose place it takes; nil: none.
	replaces *watchedProcess
}

// A waitingProcess may be watched later. It is ignored if a rule matches it, and there was no room.
type waitingProcess struct {
	tree.Arrival
	round   int // in which it came
	ignored bool
	// private is its memory when it was last read.
	private int64
}

// scan returns the processes that match and have a place; the caller closes them. ignored is how
// many match and have none.
func (f *finder) scan(
	isWatched func(tree.Arrival) bool, p *places,
) (found []candidate, ignored int, err error) {
	arrived, err := f.arrivals.Scan()
	if err != nil {
		return nil, 0, err
	}

	f.round++
	for _, a := range arrived {
		f.waiting[a.PID] = &waitingProcess{Arrival: a, round: f.round}
	}

	now := time.Now()
	maps.DeleteFunc(f.resting, func(_ string, until time.Time) bool { return now.After(until) })

	spent := make(map[string]time.Duration)
	for _, w := range f.due(isWatched) {
		c, isFound := f.try(w, p, spent)
		if isFound {
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

// due returns the processes that may be watched now, the largest one first.
func (f *finder) due(isWatched func(tree.Arrival) bool) (due []*waitingProcess) {
	for pid, w := range f.waiting {
		if w.round != f.round && (pid+f.round)%waitingRounds != 0 {
			continue
		}

		var rss int64
		rss, w.private = w.Memory()
		switch {
		case rss == growth.Unknown || isWatched(w.Arrival):
			delete(f.waiting, pid)
		case rss >= f.minRSS:
			due = append(due, w)
		}
	}

	slices.SortFunc(due, func(a, b *waitingProcess) int {
		return cmp.Or(cmp.Compare(b.private, a.private), cmp.Compare(a.PID, b.PID))
	})

	return due
}

// try compares a process with the rules, and takes a place for it if one matches. spent is how long
// the processes of each owner have taken in this scan.
func (f *finder) try(
	w *waitingProcess, p *places, spent map[string]time.Duration,
) (c candidate, isFound bool) {
	owner, err := process.ReadOwner(w.PID)
	if err != nil {
		delete(f.waiting, w.PID)
		return c, false
	}

	givenUp, hasPlace := p.offer(owner.Name, w.private)
	isLate := !f.resting[owner.Name].IsZero() || spent[owner.Name] > f.share
	if isLate || w.ignored && !hasPlace {
		return c, false
	}

	began := time.Now()
	c, err = f.match(w.Arrival, owner)
	took := time.Since(began)
	spent[owner.Name] += took
	if took > f.share {
		f.resting[owner.Name] = time.Now().Add(restFactor * took)
	}

	switch {
	case errors.Is(err, errLater):
	case err != nil:
		delete(f.waiting, w.PID)
	case !hasPlace:
		w.ignored = true
		c.process.Close()
	default:
		delete(f.waiting, w.PID)
		if givenUp != nil {
			c.replaces = givenUp.watched
		}
		p.take(owner.Name, givenUp)
		return c, true
	}

	return c, false
}

// later has a process found again in a later round.
func (f *finder) later(c candidate) {
	c.process.Close()
	f.waiting[c.PID] = &waitingProcess{Arrival: c.Arrival, round: f.round}
}

// Why a process is not watched: no rule matches it, or it may be compared with them later.
var (
	errNoMatch = errors.New("no rule matches it")
	errLater   = errors.New("it has not answered")
)

// match compares a process with the rules, the cheapest evidence first.
func (f *finder) match(a tree.Arrival, owner process.Owner) (c candidate, err error) {
	rules := f.rulesOf(owner.UID)
	if len(rules) == 0 || a.PID == f.self {
		return c, errNoMatch
	}

	p, err := f.open(a.PID)
	if err != nil {
		return c, err
	}

	rule := firstMatch(p, rules, owner.UID)
	if p.Stalled() != nil {
		p.Close()
		return c, errLater
	}

	stat, err := p.Stat()
	if rule == nil || err != nil || stat.StartTicks != a.StartTicks || f.isOwn(p) {
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
	return candidate{
		Arrival: a, process: p, owner: owner.Name, identity: identity, labels: labels,
	}, nil
}

// jobLabel is the label of the job ID. A trace does not know a rule's job.
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

// isOwn reports whether a process executes the program of this agent, whose name any can have.
func (f *finder) isOwn(p *process.Process) bool {
	if len(p.Arguments) == 0 || !strings.HasPrefix(filepath.Base(p.Arguments[0]), ownName) {
		return false
	}

	if f.own == nil {
		var err error
		if f.own, err = hostile.Open(nil, "/proc/self/exe", 0, 0); err != nil {
			return false
		}
	}

	program, err := p.OpenProgram()
	if err != nil {
		return false
	}
	defer program.Close()

	return program.Device == f.own.Device && program.Inode == f.own.Inode
}

// firstMatch returns the first rule that a process matches; nil: none.
func firstMatch(p *process.Process, rules []*matcher, uid uint32) *matcher {
	for _, r := range rules {
		if r.matches(p, uid) {
			return r
		}
	}

	return nil
}
