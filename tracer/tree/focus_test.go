package tree

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

const mib = 1 << 20

// candidate is a process with so many MiB, which has grown by some.
func candidate(pid, parent int, role growth.Role, private, grown int64) Candidate {
	c := Candidate{Private: private * mib, Before: (private - grown) * mib, Root: parent == 1}
	c.PID, c.Parent, c.Role, c.Rank = pid, parent, role, growth.Unknown
	c.Command = fmt.Sprintf("command of %d", pid)
	return c
}

func traced(c Candidate) Candidate {
	c.Traced = true
	return c
}

// fresh is a candidate of which nothing was known some seconds ago.
func fresh(c Candidate) Candidate {
	c.Before = growth.Unknown
	return c
}

func rank(pid, number int, private int64) Candidate {
	c := candidate(pid, 10, growth.RoleRank, private, 0)
	c.Rank = number
	return c
}

const (
	launcher = growth.RoleLauncher
	trainer  = growth.RoleTrainer
	loader   = growth.RoleLoaderWorker
	compiler = growth.RoleCompileWorker
	other    = growth.RoleOther
)

var focusCases = map[string]struct {
	candidates []Candidate
	trace      []int
	undecided  bool
	says       string
}{
	"nothing":         {nil, nil, true, "has exited"},
	"a plain program": {[]Candidate{fresh(candidate(10, 1, trainer, 5, 0))}, []int{10}, false, ""},
	"a root that cannot be read": {
		[]Candidate{{Process: growth.Process{PID: 10, Role: trainer}, Root: true, Private: growth.Unknown, Before: growth.Unknown}},
		[]int{10},
		false, "",
	},
	"a trainer with workers": {[]Candidate{
		fresh(candidate(10, 1, trainer, 6000, 0)), fresh(candidate(11, 10, loader, 6000, 0)), fresh(candidate(12, 10, compiler, 400, 0)),
	}, []int{10}, false, ""},
	"a worker that was asked for":         {[]Candidate{candidate(10, 1, loader, 50, 0), candidate(11, 10, other, 5, 1)}, []int{10}, false, ""},
	"a launcher that has started nothing": {[]Candidate{candidate(10, 1, launcher, 5, 0)}, nil, true, "PID 10 is `command of 10`; waiting"},
	"a launcher that grows itself":        {[]Candidate{candidate(10, 1, launcher, 50, 2)}, []int{10}, false, ""},
	"a launcher with helpers only":        {[]Candidate{candidate(10, 1, launcher, 5, 0), candidate(11, 10, other, 9, 0)}, nil, true, "waiting"},
	"a launcher whose child has just begun": {
		[]Candidate{fresh(candidate(10, 1, launcher, 9, 0)), fresh(candidate(11, 10, trainer, 1, 0))},
		[]int{11},
		false, "PID 10 is `command of 10`; tracing its child 11, which holds 1.0 MiB",
	},
	"a launcher in a launcher": {[]Candidate{
		candidate(10, 1, launcher, 9, 0), candidate(11, 10, launcher, 9, 0), candidate(12, 11, trainer, 6349, 9),
	}, []int{12}, false, "tracing its descendant 12, which holds 6.2 GiB"},
	"ranks": {[]Candidate{
		candidate(10, 1, launcher, 9, 0), rank(13, 1, 2048), rank(12, 2, 2048), rank(14, 0, 1024), candidate(15, 10, trainer, 9000, 90),
	}, []int{14, 13, 12}, false, "tracing 3 ranks, which hold 5.0 GiB together"},
	"one rank so far": {[]Candidate{candidate(10, 1, launcher, 9, 0), rank(13, 0, 20)}, []int{13}, false, "its child 13 (rank 0), which"},
	"several trainers that are new": {[]Candidate{
		candidate(10, 1, launcher, 9, 0), candidate(11, 10, trainer, 100, 9), fresh(candidate(12, 10, trainer, 10, 0)),
	}, nil, true, "several processes"},
	"several trainers of which one grows most": {[]Candidate{
		candidate(10, 1, launcher, 9, 0), candidate(11, 10, trainer, 900, 2), candidate(12, 10, trainer, 10, 8),
	}, []int{12}, false, "its child 12"},
	"several trainers that stand still": {[]Candidate{
		candidate(10, 1, launcher, 9, 0), candidate(11, 10, trainer, 90, 0), candidate(12, 10, trainer, 900, 0), candidate(13, 10, trainer, 10, 0),
	}, []int{12}, false, "its child 12"},
	"a small root with a large child that grows": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), candidate(11, 10, trainer, 80, 1),
	}, []int{11}, false, "its child 11"},
	"of several large children the one that grows most": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), candidate(11, 10, trainer, 800, 1), candidate(12, 10, trainer, 90, 5), candidate(13, 10, loader, 9000, 50),
	}, []int{12}, false, "its child 12"},
	"a child that is not large enough": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), candidate(11, 10, trainer, 79, 9),
	}, []int{10}, false, ""},
	"a large child that stands still": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), candidate(11, 10, trainer, 800, 0),
	}, []int{10}, false, ""},
	"a small root that grows too": {[]Candidate{
		candidate(10, 1, trainer, 20, 2), candidate(11, 10, trainer, 800, 7),
	}, []int{10}, false, ""},
	"a large child of which it is not known whether it grows": {[]Candidate{
		fresh(candidate(10, 1, trainer, 20, 0)), fresh(candidate(11, 10, trainer, 800, 0)),
	}, nil, true, "looking which of them grows"},
	"a small root with ranks": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), rank(12, 1, 800), func() Candidate { c := rank(11, 0, 800); c.Before -= 2 * mib; return c }(),
		candidate(15, 10, trainer, 9000, 50),
	}, []int{11, 12}, false, "2 ranks"},
	"workers that outgrow everything": {[]Candidate{
		candidate(10, 1, trainer, 20, 0), candidate(11, 10, loader, 800, 5), candidate(12, 10, loader, 700, 5),
		candidate(13, 11, loader, 800, 5), candidate(14, 10, loader, 100, 5),
	}, []int{11, 12}, false, "2 DataLoader workers"},
	"a worker that outgrows the trainer of a launcher": {[]Candidate{
		candidate(10, 1, launcher, 2, 0), candidate(11, 10, trainer, 100, 1), candidate(12, 11, compiler, 400, 4),
	}, []int{12}, false, "its descendant 12 (compile worker), which holds 400.0 MiB"},
	"a worker that outgrows it, but not clearly": {[]Candidate{
		candidate(10, 1, launcher, 2, 0), candidate(11, 10, trainer, 100, 1), candidate(12, 11, compiler, 400, 3),
	}, []int{11}, false, "its child 11"},
	"the root has exited": {[]Candidate{candidate(11, 10, trainer, 100, 1)}, []int{11}, false, "tracing PID 11, which holds 100.0 MiB"},

	"what is traced goes on": {[]Candidate{
		traced(candidate(10, 1, trainer, 500, 0)), candidate(11, 10, loader, 500, 9), candidate(12, 10, trainer, 400, 90),
	}, nil, false, ""},
	"a new rank": {
		[]Candidate{candidate(10, 1, launcher, 2, 0), traced(rank(11, 0, 500)), rank(12, 1, 5)},
		[]int{12},
		false,
		"also tracing its child 12 (rank 1), which holds 5.0 MiB",
	},
	"a trainer that outgrows what is traced": {[]Candidate{
		candidate(10, 1, launcher, 2, 0), traced(candidate(11, 10, trainer, 500, 1)), candidate(12, 10, trainer, 501, 4), candidate(13, 10, trainer, 501, 3),
	}, []int{12}, false, "also tracing its child 12"},
	"a worker that outgrows what is traced": {[]Candidate{
		traced(candidate(10, 1, trainer, 100, 0)), candidate(12, 10, loader, 399, 9), candidate(13, 10, loader, 400, 1),
	}, []int{13}, false, "also tracing its child 13 (DataLoader worker)"},
	"a traced process of which little is known": {[]Candidate{
		fresh(traced(candidate(10, 1, trainer, 100, 0))), candidate(13, 10, loader, 4000, 9),
	}, nil, false, ""},
	"the traced one of two grows": {[]Candidate{
		traced(candidate(10, 1, trainer, 100, 0)), traced(candidate(12, 10, trainer, 90, 9)), candidate(13, 10, trainer, 4000, 30),
	}, nil, false, ""},
	"a trainer that was restarted": {[]Candidate{candidate(10, 1, launcher, 2, 0), fresh(candidate(14, 10, trainer, 3, 0))}, []int{14}, false, "its child 14"},
}

func TestTheRightProcessesAreTraced(t *testing.T) {
	for name, c := range focusCases {
		t.Run(name, func(t *testing.T) {
			for _, reverse := range []bool{false, true} { // in any order
				candidates := slices.Clone(c.candidates)
				if reverse {
					slices.Reverse(candidates)
				}
				got := Focus(candidates)
				if !slices.Equal(got.Trace, c.trace) || c.undecided && got.Reason == "" {
					t.Errorf("%+v, want %v", got, c.trace)
				}
				if !strings.Contains(got.Reason, c.says) || (c.says == "") != (got.Reason == "") {
					t.Errorf("reason %q, want %q", got.Reason, c.says)
				}
			}
		})
	}
}

func TestNoMoreAreTracedThanThereIsRoomFor(t *testing.T) {
	candidates := []Candidate{candidate(10, 1, launcher, 2, 0)}
	for i := range 20 {
		candidates = append(candidates, rank(100+i, i, 64))
	}
	first := Focus(candidates)
	if len(first.Trace) != MaxTraced || !strings.Contains(first.Reason, "16 ranks, which hold 1.0 GiB together (4 more are left out)") {
		t.Errorf("%+v", first)
	}
	for i := range candidates {
		candidates[i].Traced = slices.Contains(first.Trace, candidates[i].PID)
	}
	if more := Focus(candidates); len(more.Trace) != 0 || more.Reason != "" {
		t.Errorf("then %+v", more)
	}
	candidates[1].Traced = false
	if more := Focus(candidates); !slices.Equal(more.Trace, []int{100}) {
		t.Errorf("then %+v", more)
	}
}

func TestALongCommandLineIsQuotedInPart(t *testing.T) {
	root := candidate(10, 1, launcher, 2, 0)
	root.Arguments = []string{"bash", strings.Repeat("é", 1000)}
	got := Focus([]Candidate{root}).Reason
	if want := "PID 10 is `bash " + strings.Repeat("é", maxWords-6) + "…`; "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
