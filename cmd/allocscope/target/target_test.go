package target

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/tree"
)

// resolve resolves flags and arguments of a command that needs a process.
func resolve(t *testing.T, flags, arguments string) (int, error) {
	t.Helper()
	var choice Choice
	command := &cobra.Command{Use: "trace"}
	set := command.Flags()
	choice.AddPID(command, "")
	choice.AddName(set)
	tracertest.NoError(t, set.Parse(strings.Fields(flags)))
	if choice.IsGiven() != (flags != "") {
		t.Errorf("%s: a process is chosen: %t", flags, choice.IsGiven())
	}
	return choice.Resolve(strings.Fields(arguments), "allocscope trace", true)
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		flags, arguments string
		want             int
		refusal          string
	}{
		{"--pid 7", "", 7, ""},
		{"-p 7", "", 7, ""},
		{"", "7", 7, ""},
		{"--pid 7", "7", 7, ""},
		{"--pid 0", "", 0, ""}, // the trace refuses it
		{"--pid 7", "8", 0, "two PIDs are given: 8, and --pid 7"},
		{"", "7 8", 0, `one argument too many: "8"`},
		{"", "train.py", 0, `"train.py" is not a PID (allocscope trace PID, or ` +
			`allocscope trace --name train.py)`},
		{"", "python train.py", 0, `or allocscope trace --name 'python train.py')`},
		{"", "\x1b[31m", 0, `"?[31m" is not a PID (allocscope trace PID)`},
		{"--name x", "7", 0, `--name "x" and PID 7: give one of them`},
		{"", "", 0, "name the process: allocscope trace PID"},
	} {
		got, err := resolve(t, c.flags, c.arguments)
		if got != c.want || (err != nil) != (c.refusal != "") {
			t.Errorf("%q %q: %d, %v; want %d, %q", c.flags, c.arguments, got, err, c.want,
				c.refusal)
		}
		if err != nil && (!strings.Contains(err.Error(), c.refusal) || !exit.IsUsage(err)) {
			t.Errorf("%q %q: %v; want %q, of usage", c.flags, c.arguments, err, c.refusal)
		}
	}

	_, err := resolve(t, "--name there-is-no-such-text", "")
	if exit.StatusOf(err) != exit.Refused || !errors.Is(err, tree.ErrNoMatch) ||
		!strings.Contains(err.Error(), `--name "there-is-no-such-text": no process has it`) {
		t.Errorf("no match: %v", err)
	}

	var none Choice
	if pid, err := none.Resolve(nil, "allocscope doctor", false); pid != 0 || err != nil {
		t.Errorf("none is needed: %d, %v", pid, err)
	}
}

func TestInterest(t *testing.T) {
	all := []tree.Listed{
		{PID: 1, Role: growth.RoleLauncher, IsPython: true, RSS: 9 << 30},
		{PID: 2, Role: growth.RoleOther, RSS: 8 << 30},
		{PID: 3, Role: growth.RoleTrainer, IsPython: true, RSS: 1 << 20},
		{PID: 4, Role: growth.RoleRank, IsPython: true, RSS: 2 << 20},
		{PID: 5, Role: growth.RoleOther, RSS: minLargeBytes - 1},
		{PID: 6, Role: growth.RoleLoaderWorker, IsPython: true, RSS: growth.Unknown},
	}
	var pids []int
	for _, l := range worthTracing(all) {
		pids = append(pids, l.PID)
	}
	if want := []int{4, 3, 2, 6, 1}; !slices.Equal(pids, want) {
		t.Errorf("%v are worth tracing, want %v", pids, want)
	}
}

func TestShortTable(t *testing.T) {
	rows := []tree.Listed{
		{PID: 7, RSS: 1 << 30, Age: 90 * time.Minute, Arguments: []string{"python", "train.py"}},
		{PID: 12345, RSS: growth.Unknown, Age: 59 * time.Second, Arguments: []string{"abcdefghij"}},
	}
	want := "    PID       RSS  AGE  COMMAND\n      7  1.00 GiB   1h  python train.py\n" +
		"  12345         -  59s  abcdefghij"
	if got := shortTable(rows, 15); got != want {
		t.Errorf("prints\n%s\nwant\n%s", got, want)
	}
	if got := shortTable(rows[1:], 5); !strings.HasSuffix(got, "  abcde…") {
		t.Errorf("prints\n%s", got)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59 * time.Minute: "59m",
		time.Hour: "1h", 23 * time.Hour: "23h", 24 * time.Hour: "1d", 1000 * time.Hour: "41d",
	} {
		if got := ageOf(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}

// TestResolveSelf refuses to trace allocscope itself.
func TestResolveSelf(t *testing.T) {
	var c Choice
	_, err := c.Resolve([]string{strconv.Itoa(os.Getpid())}, "allocscope trace", true)
	if exit.StatusOf(err) != exit.StatusOf(exit.Refuse(errSelf)) || !errors.Is(err, errSelf) {
		t.Errorf("its own PID: %v", err)
	}
	if pid, err := new(Choice).Resolve([]string{"1"}, "allocscope trace", true); pid != 1 || err != nil {
		t.Errorf("another PID: %d, %v", pid, err)
	}
}
