package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/fleet"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/oom"
	"github.com/allocscope/allocscope/tracer/process"
)

// runLastOOM prints the last kill in the kernel's log, with the trace of the killed process. places
// are folders of traces, or directories of agents.
func runLastOOM(command *cobra.Command, places []string) error {
	log, err := oom.Open()
	if err != nil {
		return exit.Refuse(err)
	}
	defer log.Close()
	kills, err := log.Kills()
	if err != nil {
		return err
	}

	out := command.OutOrStdout()
	if len(kills) == 0 {
		_, err := fmt.Fprintln(out, "the kernel's log has no OOM kill: there was none since the boot, "+
			"or newer records have replaced its report")
		return err
	}

	last := kills[len(kills)-1]
	age := process.Monotonic() - last.At
	at := time.Now().Add(-age)
	k := summary.OOMKillOf(last, 0)
	fmt.Fprintf(out, "out of memory at %s, %s ago: the kernel killed %s\n",
		at.Format("15:04:05 on 2 January"), units.Duration(age), words.OOMProcess(k.Command, k.PID))
	for _, line := range words.OOMLines(&k) {
		fmt.Fprintln(out, line)
	}
	return printTraceOf(out, &last, at, places)
}

// printTraceOf prints the latest trace of a process that the kernel has killed at a time.
func printTraceOf(out io.Writer, k *growth.OOMKill, at time.Time, places []string) error {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	if len(places) == 0 {
		places = []string{defaultAgentDirectory}
	}

	var latest *summary.Summary
	var path string
	for _, place := range places {
		folders, err := fleet.TraceFolders(place)
		if err != nil {
			return exit.Refuse(err)
		}
		for _, name := range folders {
			s := traceBefore(name, owner, k, at)
			if s != nil && (latest == nil || s.Started.After(latest.Started)) {
				latest, path = s, name
			}
		}
	}

	if latest == nil {
		_, err = fmt.Fprintf(out, "trace    none of PID %d in %s\n", k.PID,
			growth.Printable(places[0]))
		return err
	}
	_, err = fmt.Fprintf(out, "trace    %s: %s; %s\n", growth.Printable(path), words.Ended(latest),
		words.Headline(latest.Verdict))
	if where := words.ResultOf(latest, trace.PlaceOf(path)).Text().Where; err == nil && len(where) > 0 {
		_, err = fmt.Fprintf(out, "%8s %s\n", "", where[0])
	}
	return err
}

// traceBefore reads the trace in a folder; nil: it is none of the killed process.
func traceBefore(
	path string, owner folder.Owner, k *growth.OOMKill, at time.Time,
) *summary.Summary {
	dir, err := folder.Open(path, owner)
	if err != nil {
		return nil
	}
	defer dir.Close()
	s, err := report.ReadSummary(dir)
	boot, bootErr := process.BootID()
	if err != nil || bootErr != nil || s.Target == nil || s.Target.BootID != boot ||
		s.Started.After(at) {
		return nil
	}

	isOfTree := slices.ContainsFunc(s.Processes, func(p summary.TreeProcess) bool {
		return p.PID == k.PID
	})
	if s.Process.PID != k.PID && !isOfTree {
		return nil
	}
	return s
}
