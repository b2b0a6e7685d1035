package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/fleet"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// answeringAgent is an agent that watches two processes.
type answeringAgent struct{ asked chan serve.Request }

func (answeringAgent) State() metrics.State {
	return metrics.State{
		Version: "v1", Node: "gpu7", Watched: 3, Ignored: 1, FolderBytes: 5 << 20,
		Traces: map[metrics.TraceOutcome]uint64{metrics.TraceDone: 2, metrics.TraceRefused: 1},
		Push:   &push.Stats{Sent: 6, Waiting: 1, WaitingBytes: 2048, Dropped: 3},
		Processes: []metrics.Process{{
			Job: "llm\x1b[2J", Rank: 3, Role: growth.RoleRank, Count: 1, PID: 4242,
			Command: "python3 \x1b train.py", RSS: 9 << 30,
			Headroom: growth.Headroom{Left: 1 << 30, Bytes: 16 << 30, Of: growth.LimitCgroup},
			Verdict:  verdict.ClassLeak, Growth: 1 << 20, GrowthLow: 1e6, GrowthHigh: 2e6, ToLimit: 3600,
			Trace: &metrics.Trace{
				At: time.Date(2026, 3, 4, 5, 6, 0, 0, time.Local), Verdict: verdict.ClassLeak,
			},
		}, {
			Rank: growth.Unknown, Role: growth.RoleTrainer, Count: 2, PID: 17,
			Command: "python3 eval.py", RSS: growth.Unknown,
			Growth: math.NaN(), GrowthLow: math.NaN(), GrowthHigh: math.NaN(), ToLimit: math.NaN(),
		}},
	}
}

func (answeringAgent) Healthy() error { return nil }

func (answeringAgent) Ready() error { return errors.New("no space left") }

func (a answeringAgent) RequestTrace(
	_ context.Context, r serve.Request,
) (serve.Answer, error) {
	if r.PID == 1 {
		return serve.Answer{}, errors.New("pid 1 is not among the watched processes")
	}
	a.asked <- r
	return serve.Answer{PID: 4242, Folder: "/var/lib/allocscope/4242", LengthS: 300}, nil
}

func TestExposure(t *testing.T) {
	for ip, want := range map[string]bool{
		"127.0.0.1": false, "127.1.2.3": false, "::1": false, "0.0.0.0": true, "::": true,
		"10.1.2.3": true,
	} {
		if got := exposure(&net.TCPAddr{IP: net.ParseIP(ip), Port: 9753}); (got != "") != want {
			t.Errorf("%s: %q", ip, got)
		}
	}
	if got := exposure(nil); got != "" {
		t.Errorf("no address: %q", got)
	}
}

func TestStarted(t *testing.T) {
	var f agentFlags
	f.serve.Listen = "127.0.0.1:0"
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	got := f.started(fleet.Options{Directory: "/d"}, at)
	mustSay(t, "the first line", got, "; metrics on http://127.0.0.1:4711/metrics")
	if got := f.started(fleet.Options{}, nil); strings.Contains(got, "http") {
		t.Errorf("it does not listen: %q", got)
	}
}

// askAgent calls a command of `allocscope agent` with the socket of an agent.
func askAgent(t *testing.T, socket string, arguments ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "agent", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newAgentTraceCommand(), newAgentStatusCommand())
	root.SetArgs(append(arguments, "--socket", socket))
	var out bytes.Buffer
	root.SetOut(&out)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

// TestAgentClient asks an agent on a real socket.
func TestAgentClient(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	socket := filepath.Join(t.TempDir(), "run", "agent.sock")
	a := answeringAgent{make(chan serve.Request, 10)}
	server := tracertest.Must(serve.Listen(ctx, serve.Options{Socket: socket}, a))(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	t.Run("status", func(t *testing.T) {
		got, err := askAgent(t, socket, "status")
		want := `The agent does not do its work: no space left
gpu7: 3 processes watched, 1 more ignored; traces: 2 done, 0 failed, 1 refused; folders: 5.00 MiB
profiles: 6 sent, 1 waiting (2.00 KiB), 0 refused, 3 dropped
      JOB  RANK     ROLE   PID       RSS         GROWTH  VERDICT  LIMIT IN        LAST TRACE             COMMAND
  llm?[2J     3     rank  4242  9.00 GiB  +60.0 MiB/min     leak    60 min  Mar 4 05:06 leak  python3 ? train.py
        -     -  trainer    17         -              -        -         -                 -     python3 eval.py
`
		if err != nil || got != want {
			t.Errorf("%v\n%s", err, got)
		}
	})
	t.Run("status as JSON", func(t *testing.T) {
		got := tracertest.Must(askAgent(t, socket, "status", "--json"))(t)
		mustFit(t, "agent-status.json", got)
	})
	t.Run("trace", func(t *testing.T) {
		got, err := askAgent(t, socket, "trace", "--job", "llm", "--rank", "0")
		want := "The agent traces PID 4242 for 5m, into /var/lib/allocscope/4242\n"
		if err != nil || got != want {
			t.Fatalf("%q, %v", got, err)
		}
		if r := <-a.asked; r.Job != "llm" || *r.Rank != 0 || r.PID != 0 {
			t.Errorf("asked for %+v", r)
		}
		_, err = askAgent(t, socket, "trace", "--pid", "4242", "--json")
		if r := <-a.asked; err != nil || r.PID != 4242 || r.Rank != nil {
			t.Errorf("asked for %+v, %v", r, err)
		}
	})

	for name, test := range map[string]struct {
		socket, arguments, want string
		isUsage                 bool
	}{
		"refused":     {socket, "trace --pid 1", "pid 1 is not among", false},
		"no agent":    {socket + "-none", "status", "no agent listens on", false},
		"no process":  {socket, "trace", "give --pid, or", true},
		"both":        {socket, "trace --pid 1 --job a", "give --pid, or", true},
		"rank of pid": {socket, "trace --pid 1 --rank 1", "--rank goes with --job", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := askAgent(t, test.socket, strings.Fields(test.arguments)...)
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				exit.StatusOf(err) != exit.Refused || exit.IsUsage(err) != test.isUsage {
				t.Errorf("%v", err)
			}
		})
	}
}
