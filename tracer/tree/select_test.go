package tree

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib = 1 << 20

// roles are the roles in the text of parseCandidates.
var roles = map[string]growth.Role{
	"launcher": growth.RoleLauncher, "trainer": growth.RoleTrainer, "rank": growth.RoleRank,
	"loader": growth.RoleLoaderWorker, "worker": growth.RoleWorker, "compiler": growth.RoleCompileWorker,
	"other": growth.RoleOther,
}

// parseCandidates parses candidates of the form
//
//	11<10 rank#1 800+2 traced
//
// PID 11, a child of 10, is rank 1, has 800 MiB, of which it has grown 2, and is being traced.
// Without a parent it is the root. "+2!9" has grown by 9 in each of three periods. A question mark instead of the growth means no history, and
// instead of the memory, too, that it cannot be read.
func parseCandidates(t *testing.T, text string) (candidates []Candidate) {
	t.Helper()
	number := func(text string) int {
		return tracertest.Must(strconv.Atoi(text))(t)
	}

	for text := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		pid, parent, isChild := strings.Cut(words[0], "<")
		role, rank, isRank := strings.Cut(words[1], "#")

		c := Candidate{Private: growth.Unknown, Before: growth.Unknown}
		c.Root, c.Traced = !isChild, len(words) > 3
		c.PID, c.Parent, c.Role, c.Rank = number(pid), 1, roles[role], growth.Unknown
		c.Command = "command of " + pid
		if isChild {
			c.Parent = number(parent)
		}
		if isRank {
			c.Rank = number(rank)
		}
		private, grown, hasHistory := strings.Cut(words[2], "+")
		if private = strings.TrimSuffix(private, "?"); private != "" {
			c.Private = int64(number(private)) * mib
		}
		if hasHistory {
			grown, lasting, _ := strings.Cut(grown, "!")
			c.Before = c.Private - int64(number(grown))*mib
			if lasting != "" {
				c.Lasting = int64(number(lasting)) * mib
			}
		}
		candidates = append(candidates, c)
	}
	return candidates
}

func TestSelectTraced(t *testing.T) {
	const undecided = "undecided"
	for name, c := range map[string]struct {
		candidates string
		trace      string // PIDs
		reason     growth.SelectionReason
	}{
		"no process":      {"", undecided, growth.SelectionNone},
		"plain program":   {"10 trainer 5?", "10", ""},
		"unreadable root": {"10 trainer ?", "10", ""},
		"trainer with workers": {
			"10 trainer 6000?, 11<10 loader 6000?, 12<10 compiler 400?",
			"10", "",
		},
		"worker as root":        {"10 loader 50+0, 11<10 other 5+1", "10", ""},
		"launcher alone":        {"10 launcher 5+0", undecided, growth.SelectionWaiting},
		"launcher that grows":   {"10 launcher 50+2", "10", ""},
		"launcher with helpers": {"10 launcher 5+0, 11<10 other 9+0", undecided, growth.SelectionWaiting},
		"launcher with a new child": {
			"10 launcher 9?, 11<10 trainer 1?",
			"11", growth.SelectionTraced,
		},
		"launcher in a launcher": {
			"10 launcher 9+0, 11<10 launcher 9+0, 12<11 trainer 6349+9",
			"12", growth.SelectionTraced,
		},
		"ranks": {
			"10 launcher 9+0, 13<10 rank#1 2048+0, 12<10 rank#2 2048+0, " +
				"14<10 rank#0 1024+0, 15<10 trainer 9000+90",
			"14 13 12", growth.SelectionTraced,
		},
		"first rank": {"10 launcher 9+0, 13<10 rank#0 20+0", "13", growth.SelectionTraced},
		"trainers: one is new": {
			"10 launcher 9+0, 11<10 trainer 100+9, 12<10 trainer 10?",
			undecided, growth.SelectionTrainers,
		},
		"trainers: one grows most": {
			"10 launcher 9+0, 11<10 trainer 900+2, 12<10 trainer 10+8",
			"12", growth.SelectionTraced,
		},
		"trainers: none grows": {"10 launcher 9+0, 11<10 trainer 90+0, 12<10 trainer 900+0, " +
			"13<10 trainer 10+0", "12", growth.SelectionTraced},
		"child: large and growing": {"10 trainer 20+0, 11<10 trainer 80+1", "11", growth.SelectionTraced},
		"child: of several, most": {"10 trainer 20+0, 11<10 trainer 800+1, 12<10 trainer 90+5, " +
			"13<10 loader 9000+50", "12", growth.SelectionTraced},
		"child: not large enough": {"10 trainer 20+0, 11<10 trainer 79+9", "10", ""},
		"child: steady":           {"10 trainer 20+0, 11<10 trainer 800+0", "10", ""},
		"child: root grows too":   {"10 trainer 20+2, 11<10 trainer 800+7", "10", ""},
		"child: growth unknown": {
			"10 trainer 20?, 11<10 trainer 800?",
			undecided, growth.SelectionLarger,
		},
		"children are ranks": {"10 trainer 20+0, 12<10 rank#1 800+0, 11<10 rank#0 800+2, " +
			"15<10 trainer 9000+50", "11 12", growth.SelectionTraced},
		"workers outgrow everything": {"10 trainer 20+0, 11<10 loader 800+5, 12<10 loader 700+5, " +
			"13<11 loader 800+5, 14<10 loader 100+5", "11 12", growth.SelectionTraced},
		"worker outgrows the trainer": {"10 launcher 2+0, 11<10 trainer 100+1, " +
			"12<11 compiler 400+4", "12", growth.SelectionTraced},
		"worker grows too little": {
			"10 launcher 2+0, 11<10 trainer 100+1, 12<11 compiler 400+3",
			"11", growth.SelectionTraced,
		},
		"root has exited": {"11<10 trainer 100+1", "11", growth.SelectionTraced},
		"traced: nothing to add": {"10 trainer 500+0 traced, 11<10 loader 500+9, " +
			"12<10 trainer 400+90", "", ""},
		"traced: new rank": {
			"10 launcher 2+0, 11<10 rank#0 500+0 traced, 12<10 rank#1 5+0",
			"12", growth.SelectionAdded,
		},
		"traced: a trainer outgrows": {"10 launcher 2+0, 11<10 trainer 500+1 traced, " +
			"12<10 trainer 501+4, 13<10 trainer 501+3", "12", growth.SelectionAdded},
		"traced: a worker outgrows": {"10 trainer 100+0 traced, 12<10 loader 399+9, " +
			"13<10 loader 400+1", "13", growth.SelectionAdded},
		"traced: workers that grow, one of each role": {"10 trainer 500+0 traced, " +
			"11<10 worker 100+9!7, 12<10 worker 100+9!8, 13<10 worker 100+90, " +
			"14<10 compiler 5+2!1", "12 14", growth.SelectionAdded},
		"traced: one worker is enough": {"10 trainer 500+0 traced, 11<10 worker 100+9!7 traced, " +
			"12<10 worker 100+9!9", "", ""},
		"traced: workers grow far less": {"10 trainer 500+40 traced, 11<10 worker 100+9!9", "", ""},
		"traced: growth unknown":        {"10 trainer 100? traced, 13<10 loader 4000+9", "", ""},
		"traced: one of them grows too": {"10 trainer 100+0 traced, 12<10 trainer 90+9 traced, " +
			"13<10 trainer 4000+30", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			candidates := parseCandidates(t, c.candidates)
			for range 2 { // in any order
				slices.Reverse(candidates)
				got := SelectTraced(candidates)
				want := strings.Fields(strings.TrimPrefix(c.trace, undecided))
				if fmt.Sprint(got.Trace) != fmt.Sprint(want) {
					t.Errorf("%+v, want %v", got, want)
				}
				if got.Selection.Reason != c.reason {
					t.Errorf("%+v, want %q", got.Selection, c.reason)
				}
			}
		})
	}
}

func TestSelection(t *testing.T) {
	for text, want := range map[string]growth.Selection{
		"10 launcher 9?, 11<10 trainer 3?": {
			Reason: growth.SelectionTraced, Root: 10, Command: "command of 10",
			RootRole: growth.RoleLauncher, Processes: 1, Traced: "command of 11", PID: 11, Parent: 10, Role: growth.RoleTrainer, Rank: growth.Unknown, Private: 3 * mib,
		},
		"10 launcher 9+0, 13<10 rank#1 20+0, 12<10 rank#0 10+0": {
			Reason: growth.SelectionTraced, Root: 10, Command: "command of 10",
			RootRole: growth.RoleLauncher, Processes: 2, Traced: "command of 12", PID: 12, Parent: 10, Role: growth.RoleRank, Rank: 0, Private: 30 * mib,
		},
		"11<10 trainer 100+1": {
			Reason: growth.SelectionTraced, Processes: 1, Traced: "command of 11",
			PID: 11, Parent: 10, Role: growth.RoleTrainer, Rank: growth.Unknown, Private: 100 * mib,
		},
		"10 launcher 5+0": {
			Reason: growth.SelectionWaiting, Root: 10, Command: "command of 10",
			RootRole: growth.RoleLauncher,
		},
	} {
		if got := SelectTraced(parseCandidates(t, text)).Selection; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}

	root := parseCandidates(t, "10 launcher 2+0")[0]
	root.Arguments = []string{"bash", "-c", "train"}
	if got := SelectTraced([]Candidate{root}).Selection.Command; got != "bash -c train" {
		t.Errorf("the command line is %q", got)
	}
}

func TestMaxTraced(t *testing.T) {
	text := "10 launcher 2+0"
	for i := range 20 {
		text += fmt.Sprintf(", %d<10 rank#%d 64+0", 100+i, i)
	}
	candidates := parseCandidates(t, text)
	first := SelectTraced(candidates)
	if got := first.Selection; len(first.Trace) != MaxTraced || got.Processes != MaxTraced ||
		got.LeftOut != 4 || got.Private != 64*MaxTraced*mib {
		t.Errorf("%+v", first)
	}

	for i := range candidates {
		candidates[i].Traced = slices.Contains(first.Trace, candidates[i].PID)
	}
	if more := SelectTraced(candidates); len(more.Trace) != 0 || more.Selection.Reason != "" {
		t.Errorf("then %+v", more)
	}
	candidates[1].Traced = false
	if more := SelectTraced(candidates); !slices.Equal(more.Trace, []int{100}) {
		t.Errorf("then %+v", more)
	}
}

// The youngest of the workers that take the place of ones that grew is traced, one at a time.
func TestSelectReplacement(t *testing.T) {
	const server, first, second = "10 trainer 90+0 traced, ", "11<10 worker 99+0, ", "12<10 worker 91+0"
	for name, c := range map[string]struct {
		candidates string
		replaces   []int
		want       []int
	}{
		"none has grown":      {server + first + second, nil, nil},
		"the youngest":        {server + first + second, []int{11, 12}, []int{12}},
		"of another server":   {server + first + "13<9 worker 91+0", []int{11}, []int{11}},
		"one is traced":       {server + "11<10 worker 99+0 traced, " + second, []int{11, 12}, nil},
		"without any history": {"10 trainer 90? traced, 11<10 worker 9?", []int{11}, []int{11}},
	} {
		candidates := parseCandidates(t, c.candidates)
		for i := range candidates {
			candidates[i].Service = "gunicorn"
			candidates[i].Born = time.Duration(candidates[i].PID) * time.Second
			candidates[i].IsReplacement = slices.Contains(c.replaces, candidates[i].PID)
		}
		if got := SelectTraced(candidates).Trace; !slices.Equal(got, c.want) {
			t.Errorf("%s: traces %d, want %d", name, got, c.want)
		}
	}
}

// A service is of interest once a worker of it has grown until its end.
func TestNoteGrowth(t *testing.T) {
	worker := func(role growth.Role, name string, mebibytes ...int64) *Member {
		m := &Member{Info: growth.Process{Parent: 10, Service: name, Role: role}}
		for i, of := range mebibytes {
			m.history = append(m.history, privateSample{time.Duration(i) * time.Second, of * mib})
		}
		return m
	}
	tree := New(nil, true, nil)
	for _, m := range []*Member{
		worker(growth.RoleWorker, "grows", 9, 20, 10), worker(growth.RoleWorker, "steady", 9, 12),
		worker(growth.RoleWorker, "short", 20), worker(growth.RoleOther, "command", 9, 90),
	} {
		tree.noteGrowth(m)
	}
	if want := map[service]bool{{10, "grows"}: true}; !maps.Equal(tree.grown, want) {
		t.Errorf("%v, want %v", tree.grown, want)
	}
}
