package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
// are folders of traces, or directories of agents: the last kill with a trace there comes first.
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

	traces, err := findTraces(places)
	if err != nil {
		return exit.Refuse(err)
	}
	out := command.OutOrStdout()
	if len(kills) == 0 {
		_, err := fmt.Fprintln(out, "the kernel's log has no OOM kill: there was none since the boot, "+
			"or newer records have replaced its report")
		return err
	}

	last := kills[len(kills)-1]
	if len(places) > 0 {
		last = lastOf(kills, traces)
	}
	traced, pid := latestOf(traces, &last)
	return printKill(out, &last, traced, pid)
}

// lastOf returns the last kill of a traced process, or else beside one, or else the last one.
func lastOf(kills []growth.OOMKill, traces []foundTrace) (last growth.OOMKill) {
	last = kills[len(kills)-1]
	isBeside := false
	for _, k := range slices.Backward(kills) {
		traced, pid := latestOf(traces, &k)
		switch {
		case traced != nil && pid == k.PID:
			return k
		case traced != nil && !isBeside:
			last, isBeside = k, true
		}
	}
	return last
}

// printKill prints a kill, and the trace of the killed process, or of another one there, by its
// PID; nil: there is none.
func printKill(out io.Writer, kill *growth.OOMKill, traced *foundTrace, pid int) error {
	k := summary.OOMKillOf(*kill, 0)
	fmt.Fprintf(out, "out of memory at %s, %s ago: the kernel killed %s\n",
		timeOf(kill).Format("15:04:05 on 2 January"), units.Duration(time.Since(timeOf(kill))),
		words.OOMProcess(k.Command, k.PID))
	for _, line := range words.OOMLines(&k) {
		fmt.Fprintln(out, line)
	}
	if traced == nil {
		_, err := fmt.Fprintf(out, "trace    none of PID %d (allocscope agent makes them; show "+
			"--last-oom DIR names another place)\n", k.PID)
		return err
	}

	var err error
	for i, line := range traced.lines {
		label := ""
		if i == 0 {
			label = "trace"
			if pid != k.PID {
				line = fmt.Sprintf("of PID %d beside it: %s", pid, line)
			}
		}
		_, err = fmt.Fprintf(out, "%-8s %s\n", label, line)
	}
	return err
}

// timeOf is the time of a kill.
func timeOf(k *growth.OOMKill) time.Time { return time.Now().Add(k.At - process.Monotonic()) }

// A foundTrace is a trace of this boot.
type foundTrace struct {
	started time.Time
	exited  time.Time // of the process that it traced; zero: it has not, as far as is known
	pids    []int     // of the tree
	lines   []string  // its path, and its result
}

// hasExited reports whether the process had exited well before, so that another one may have its PID.
func (t *foundTrace) hasExited(at time.Time) bool {
	return !t.exited.IsZero() && t.exited.Before(at.Add(-time.Minute))
}

// findTraces reads the traces in places; none is the directory of the agent, where there is one.
func findTraces(places []string) (found []foundTrace, err error) {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	boot, err := process.BootID()
	if err != nil {
		return nil, err
	}

	isNamed := len(places) > 0
	if !isNamed {
		places = []string{defaultAgentDirectory}
	}
	for _, place := range places {
		paths, err := fleet.TraceFolders(place)
		if err != nil && (isNamed || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("%w (name the folder of a trace, or the directory of an agent)", err)
		}
		for _, path := range paths {
			if traced, ok := readTraced(path, owner, boot); ok {
				found = append(found, traced)
			}
		}
	}
	return found, nil
}

// readTraced reads the trace in a folder. It is none of this boot where ok is false.
func readTraced(path string, owner folder.Owner, boot string) (traced foundTrace, ok bool) {
	dir, err := folder.Open(path, owner)
	if err != nil {
		return traced, false
	}
	defer dir.Close()
	s, err := report.ReadSummary(dir)
	if err != nil || s.Target == nil || s.Target.BootID != boot {
		return traced, false
	}

	traced.started, traced.pids = s.Started, []int{s.Process.PID}
	if s.Ended == summary.EndedExit {
		traced.exited = s.Started.Add(time.Duration(s.DurationS * float64(time.Second)))
	}
	for _, p := range s.Processes {
		traced.pids = append(traced.pids, p.PID)
	}
	traced.lines = []string{fmt.Sprintf("%s: %s; %s", growth.Printable(path), words.Ended(s),
		words.Headline(s.Verdict))}
	if where := words.ResultOf(s, trace.PlaceOf(path)).Text().Where; len(where) > 0 {
		traced.lines = append(traced.lines, where[0])
	}
	return traced, true
}

// latestOf returns the latest trace that the killed process was in, or else one of the largest
// processes beside it, and its PID; nil: there is none.
func latestOf(traces []foundTrace, k *growth.OOMKill) (latest *foundTrace, pid int) {
	at, pids := timeOf(k), []int{k.PID}
	for _, task := range k.Largest {
		pids = append(pids, task.PID)
	}
	for _, pid := range pids {
		for i := range traces {
			t := &traces[i]
			isOf := slices.Contains(t.pids, pid) && t.started.Before(at) && !t.hasExited(at)
			if isOf && (latest == nil || t.started.After(latest.started)) {
				latest = t
			}
		}
		if latest != nil {
			return latest, pid
		}
	}
	return nil, 0
}
