package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
)

// exposure warns of an address that other machines can reach; nil is none.
func exposure(at *net.TCPAddr) string {
	if at == nil || at.IP.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%s is no loopback address: everyone who reaches it can read the metrics, with "+
		"names of jobs and nodes, unencrypted and without a password", at)
}

// agentClientFlags are the flags of the commands that ask the agent.
type agentClientFlags struct {
	socket string
	json   bool
}

func (f *agentClientFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.socket, "socket", serve.DefaultSocket, "socket of the agent")
	command.Flags().BoolVar(&f.json, "json", false, "print the answer as JSON")
	cli.CompleteFiles(command, "socket")
}

// explain adds the request and the remedy to an error of the agent.
func (f *agentClientFlags) explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, serve.ErrNoAgent):
		err = fmt.Errorf("%s: no agent listens on %s (start it with this --socket)", what, f.socket)
	default:
		err = fmt.Errorf("%s: %w", what, err)
	}
	return exit.Refuse(err)
}

func newAgentTraceCommand() *cobra.Command {
	var flags agentClientFlags
	var job string
	var pid, rank int
	command := &cobra.Command{
		Use:   "trace",
		Short: "Ask the running agent to trace a process now",
		Long: `Trace asks the agent of this machine to trace one of the processes that it watches, and does
not wait for the end. The agent refuses what is beyond its budget. Its folders and pushes are
as if it had started the trace itself. Only root may ask, and only an agent that was started
with --socket.`,
		Example: `  sudo allocscope agent trace --pid 4242
  sudo allocscope agent trace --job 1234 --rank 3`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			request := serve.Request{Job: job, PID: pid}
			if command.Flags().Changed("rank") {
				request.Rank = &rank
			}
			switch {
			case (pid == 0) == (job == ""):
				return exit.Usage(errors.New("give --pid, or --job and --rank"))
			case pid != 0 && request.Rank != nil:
				return exit.Usage(errors.New("--rank goes with --job"))
			}

			started, err := serve.NewClient(flags.socket).Trace(command.Context(), request)
			if err != nil {
				return flags.explain("ask for a trace", err)
			}
			out := command.OutOrStdout()
			if flags.json {
				return json.NewEncoder(out).Encode(started)
			}
			length := time.Duration(started.LengthS * float64(time.Second))
			_, err = fmt.Fprintf(out, "The agent traces PID %d for %s, into %s\n", started.PID,
				units.Duration(length), growth.Printable(started.Folder))
			return err
		},
	}

	set := command.Flags()
	set.IntVar(&pid, "pid", 0, "the process")
	set.StringVar(&job, "job", "", "job ID of the process")
	set.IntVar(&rank, "rank", 0, "rank of the process in its job")
	cli.CompleteFlag(command, "pid", target.CompletePID)
	flags.add(command)
	return command
}

func newAgentStatusCommand() *cobra.Command {
	var flags agentClientFlags
	command := &cobra.Command{
		Use:   "status",
		Short: "Print what the running agent watches, and its verdicts",
		Long: `Status asks the agent of this machine for the processes that it watches, with their verdicts
and their last traces. Only root may ask, and only an agent that was started with --socket.
docs/reference/metrics.md has the same as metrics.`,
		Example: `  sudo allocscope agent status`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			s, err := serve.NewClient(flags.socket).Status(command.Context())
			if err != nil {
				return flags.explain("ask for the status", err)
			}
			out := command.OutOrStdout()
			if flags.json {
				encoder := json.NewEncoder(out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(s)
			}
			return printStatus(out, s)
		},
	}
	flags.add(command)
	return command
}

// printStatus prints the agent's status, for people.
func printStatus(out io.Writer, s *serve.Status) error {
	text := growth.Printable
	if s.Unhealthy != "" {
		fmt.Fprintf(out, "The agent does not do its work: %s\n", text(s.Unhealthy))
	}
	fmt.Fprintf(out, "%s: %s watched", text(s.Node), units.Plural(s.Watched, "process", "processes"))
	if s.Ignored > 0 {
		fmt.Fprintf(out, ", %d more ignored", s.Ignored)
	}
	fmt.Fprintf(out, "; traces: %d done, %d failed, %d refused; folders: %s\n",
		s.Traces[metrics.TraceDone], s.Traces[metrics.TraceFailed], s.Traces[metrics.TraceRefused],
		units.Bytes(float64(s.FolderBytes)))
	if p := s.Push; p != nil {
		fmt.Fprintf(out, "profiles: %d sent, %d waiting (%s), %d refused, %d dropped\n", p.Sent,
			p.Waiting, units.Bytes(float64(p.WaitingBytes)), p.Refused, p.Dropped)
	}
	if len(s.Processes) == 0 {
		return nil
	}

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "JOB\tRANK\tROLE\tPID\tRSS\tGROWTH\tVERDICT\tLIMIT IN\tLAST TRACE\tCOMMAND\t\n")
	for i := range s.Processes {
		p := &s.Processes[i]
		rank, traced := "-", "-"
		if p.Rank != nil {
			rank = strconv.Itoa(*p.Rank)
		}
		if p.TracedAt != nil {
			traced = p.TracedAt.Local().Format("Jan 2 15:04") + " " + text(string(p.TraceVerdict))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			orDash(text(p.JobID)), rank, text(string(p.Role)), p.PID, orUnknown(p.RSS, sizeText),
			orUnknown(p.PerMin, rateText), orDash(text(string(p.Verdict))),
			orUnknown(p.ToLimitS, spanText), traced, text(p.Command))
	}
	return w.Flush()
}

func orDash(text string) string { return cmp.Or(text, "-") }

// orUnknown writes a number, or a dash where it is unknown.
func orUnknown[N any](n *N, write func(N) string) string {
	if n == nil {
		return "-"
	}
	return write(*n)
}

func sizeText(bytes int64) string       { return units.Bytes(float64(bytes)) }
func rateText(perMinute float64) string { return units.Signed(perMinute) + "/min" }
func spanText(seconds float64) string   { return units.Span(seconds, false, math.Round) }
