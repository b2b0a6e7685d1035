package target

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tree"
)

// paceSpan is the time between the two readings of RSS.
const paceSpan = time.Second

// A row is a process, with how fast it grows.
type row struct {
	tree.Listed
	pace  float64 // growth of RSS, in bytes a second
	known bool    // pace is
}

// NewCommand returns the command ps.
func NewCommand() *cobra.Command {
	var all, asJSON bool
	command := &cobra.Command{
		Use:   "ps",
		Short: "List the processes that are worth tracing",
		Long: `Ps lists Python programs and large processes, the most likely one first: their memory
(RSS), how fast it grows, their role in a training job, their container and their malloc.

It needs no privilege. Of processes of other users it can read less without root.`,
		Example: `  allocscope ps
  sudo allocscope ps --all`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runPS(command.Context(), command.OutOrStdout(), all, asJSON)
		},
	}

	command.Flags().BoolVarP(&all, "all", "a", false,
		"list all processes, not only Python and large ones")
	command.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return command
}

func runPS(ctx context.Context, out io.Writer, all, asJSON bool) error {
	listed, err := tree.ListMachine()
	if err != nil {
		return err
	}

	if all {
		sortByInterest(listed)
	} else {
		listed = worthTracing(listed)
	}

	rows, span, err := measure(ctx, listed)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(out, rows, span)
	}

	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No Python program and no large process runs: "+
			"allocscope ps --all lists the others")
		return err
	}
	return print(out, rows, span)
}

// measure reads RSS of the processes twice, and leaves out those that exit meanwhile.
func measure(ctx context.Context, listed []tree.Listed) ([]row, time.Duration, error) {
	before := make([]int64, len(listed))
	began := time.Now()
	for i, l := range listed {
		before[i] = l.ReadRSS()
	}

	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-time.After(paceSpan):
	}

	span := time.Since(began)
	var rows []row
	for i, l := range listed {
		l.RSS = l.ReadRSS()
		if l.RSS == growth.Unknown {
			continue
		}
		r := row{Listed: l, known: before[i] != growth.Unknown}
		if r.known {
			r.pace = float64(l.RSS-before[i]) / span.Seconds()
		}
		rows = append(rows, r)
	}
	return rows, span, nil
}

// maxPlainColumns of a list that is not printed to a terminal.
const maxPlainColumns = 1000

// print prints the list, with commands cut to the width of a terminal.
func print(out io.Writer, rows []row, span time.Duration) error {
	const columnsBefore = 78 // of the command, at most
	columns := maxPlainColumns
	if console.IsTerminal(out) {
		columns = console.Width(out)
	}

	w := newTable(console.Wrapped(out))
	fmt.Fprint(w, "PID\tRSS\tPACE\tROLE\tCONTAINER\tALLOCATOR\t  COMMAND\n")
	unreadable := 0
	for _, r := range rows {
		pace := "-"
		if r.known {
			pace = units.Signed(r.pace*time.Minute.Seconds()) + "/min"
		}
		if !r.IsReadable {
			unreadable++
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t  %s\n", r.PID, sizeOf(r.RSS), pace, roleOf(r.Listed),
			orDash(growth.Truncate(r.Container, 20)), orDash(r.Allocator),
			commandOf(r.Listed, max(20, columns-columnsBefore)))
	}
	if err := w.Flush(); err != nil {
		return err
	}

	slog.Info(fmt.Sprintf("PACE is the growth of RSS over %s", units.Seconds(span.Seconds())))
	if unreadable > 0 {
		remedy := "of other users could not be read: sudo allocscope ps"
		if os.Geteuid() == 0 {
			remedy = "could not be read, although allocscope is root"
		}
		slog.Info(fmt.Sprintf("allocator and exact role of %s %s",
			units.Plural(unreadable, "process", "processes"), remedy))
	}
	return nil
}

// schema is the version of the JSON.
const schema = "allocscope-ps/1"

type jsonList struct {
	Schema    string        `json:"schema"`
	SpanS     float64       `json:"span_s"`
	Processes []jsonProcess `json:"processes"`
}

type jsonProcess struct {
	PID       int         `json:"pid"`
	Parent    int         `json:"parent"`
	AgeS      float64     `json:"age_s"`
	RSSBytes  int64       `json:"rss_bytes"`
	PerMin    *float64    `json:"rate_bytes_per_min,omitempty"`
	Role      growth.Role `json:"role"`
	Rank      *int        `json:"rank,omitempty"`
	Container string      `json:"container,omitempty"`
	Allocator string      `json:"allocator,omitempty"`
	Arguments []string    `json:"arguments"`
	Readable  bool        `json:"readable"`
}

func writeJSON(out io.Writer, rows []row, span time.Duration) error {
	list := jsonList{Schema: schema, SpanS: span.Seconds(), Processes: []jsonProcess{}}
	for _, r := range rows {
		p := jsonProcess{
			PID: r.PID, Parent: r.Parent, AgeS: r.Age.Seconds(), RSSBytes: r.RSS, Role: r.Role,
			Container: r.Container, Allocator: r.Allocator, Arguments: r.Arguments,
			Readable: r.IsReadable,
		}
		if r.known {
			p.PerMin = new(r.pace * time.Minute.Seconds())
		}
		if r.Rank != growth.Unknown {
			p.Rank = &r.Rank
		}
		list.Processes = append(list.Processes, p)
	}

	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
}
