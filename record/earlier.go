package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds on the data read from the folder of an earlier trace, which may be forged.
const (
	maxEarlierRows      = 1 << 19 // of timeline.csv: months, as a long trace writes ever fewer
	maxEarlierSamples   = 1 << 20 // of processes.csv, of processes that are no workers
	maxEarlierProcesses = 1000
	maxEarlierMarks     = 10_000
	maxEarlierGaps      = 1000
	maxCommandBytes     = 200
)

const (
	ticksPerSecond = 100     // of starttime in proc_pid_stat(5)
	maxStartTicks  = 1 << 38 // 87 years
)

// An Earlier is a trace that another one continues. Its times count from its start.
type Earlier struct {
	path    string // as the user named it
	summary *summary.Summary
	history growth.History
	last    time.Duration // its last sample
	gaps    []summary.Gap
	steps   map[processKey]int64
}

// A processKey distinguishes all processes since the boot.
type processKey struct {
	pid   int
	start int64 // as growth.Process.Start
}

// ReadEarlier reads the trace in a folder, which a trace of the process with a PID continues. It is
// an error if that trace was of another process than the one that has the PID now.
func ReadEarlier(path string, pid int) (*Earlier, error) {
	e := &Earlier{path: growth.Printable(path)}
	if err := e.open(path, pid); err != nil {
		return nil, fmt.Errorf("continue %s: %w", e.path, err)
	}
	return e, nil
}

func (e *Earlier) open(path string, pid int) error {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	dir, err := folder.Open(path, owner)
	if err != nil {
		return err
	}
	defer dir.Close()

	err = dir.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		e.summary, err = summary.Read(r)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it has no %s: the trace still runs, or was killed before its end",
			folder.SummaryFile)
	}
	if err != nil {
		return err
	}

	if err := e.checkTarget(pid); err != nil {
		return err
	}
	return e.read(dir)
}

// checkTarget checks that the process with a PID is the one that was traced.
func (e *Earlier) checkTarget(pid int) error {
	target := e.summary.Target
	if target == nil {
		return errors.New("it does not say when its process started: an older allocscope wrote it " +
			"(trace again without --continue)")
	}
	now := float64(kernel.Monotonic()) / 1e9
	switch {
	case !(target.MonotonicS > 0) || target.StartTicks < 0 || target.StartTicks > maxStartTicks:
		return fmt.Errorf("its %s is damaged: target is out of range", folder.SummaryFile)
	case !slices.Contains(e.traced(), pid) && pid != target.PID:
		return fmt.Errorf("it is a trace of PID %d (%s), not of PID %d", target.PID,
			commandName(e.summary.Process.Command), pid)
	}

	boot, err := process.BootID()
	switch {
	case err != nil:
		return err
	case boot != target.BootID:
		return errors.New("the machine has booted since, or it is a trace of another machine: " +
			"the process is another one")
	case target.MonotonicS > now:
		return fmt.Errorf("its %s is damaged: the trace began in the future", folder.SummaryFile)
	}

	stat, err := process.ReadStat(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("PID %d has exited", pid)
	case err != nil:
		return err
	}
	return e.checkStart(pid, stat)
}

// checkStart checks that a process began when the one that was traced did.
func (e *Earlier) checkStart(pid int, stat process.Stat) error {
	if e.startOf(pid) != stat.StartTicks {
		return fmt.Errorf("PID %d is another process now: the one that was traced has exited", pid)
	}
	return nil
}

// startOf returns the start of a process that was traced; -1: unknown.
func (e *Earlier) startOf(pid int) int64 {
	if e.summary.Target.PID == pid {
		return e.summary.Target.StartTicks
	}
	for _, p := range e.summary.Processes {
		if p.PID == pid && p.StartTicks > 0 {
			return p.StartTicks
		}
	}
	return -1
}

// traced are the PIDs of the traced processes.
func (e *Earlier) traced() []int {
	var pids []int
	for _, p := range e.summary.Processes {
		if p.Traced {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// CheckProgram checks that a process still executes the program that was traced, as far as is
// known.
func (e *Earlier) CheckProgram(p *process.Process) error {
	if e == nil {
		return nil
	}
	stat, err := p.Stat()
	if err == nil {
		err = e.checkStart(p.PID, stat)
	}
	before := e.summary.Process
	if err == nil && before.PID == p.PID && before.Executable != p.Executable {
		err = fmt.Errorf("PID %d executes %s now, and executed %s then", p.PID, p.Executable,
			growth.Truncate(growth.Printable(before.Executable), maxCommandBytes))
	}
	if err != nil {
		return fmt.Errorf("continue %s: %w", e.path, err)
	}
	return nil
}

// Started is when the clock of the earlier trace began, in ns of CLOCK_MONOTONIC; 0 for nil.
func (e *Earlier) Started() uint64 {
	if e == nil {
		return 0
	}
	return uint64(e.summary.Target.MonotonicS * 1e9)
}

// read reads the timeline, the timeline of each process, and the marks.
func (e *Earlier) read(dir *folder.Folder) error {
	var timeline []growth.Row
	err := dir.ReadFile(folder.TimelineFile, func(r io.Reader) (err error) {
		bounded := &rows.FirstLines{R: r, Left: maxEarlierRows + 1} // with the header
		timeline, err = rows.ReadTimeline(bounded)
		if err == nil && bounded.Left == 0 {
			err = fmt.Errorf("more than %d rows", maxEarlierRows)
		}
		return err
	})
	if err != nil {
		return err
	}

	now := time.Duration(kernel.Monotonic() - e.Started())
	if n := len(timeline); n == 0 || timeline[n-1].Elapsed > now {
		return fmt.Errorf("read %s: it has no rows, or rows of the future", folder.TimelineFile)
	}
	e.last = timeline[len(timeline)-1].Elapsed

	processes, err := e.readProcesses(dir)
	if err != nil {
		return err
	}
	e.history.Restore(timeline, processes)
	e.steps = make(map[processKey]int64)
	for _, p := range e.history.Processes {
		e.steps[processKey{p.PID, p.Start}] = p.LastSteps()
	}
	e.readMarks(now)
	return nil
}

// readProcesses reads the samples of the processes that are traced, or are no workers.
func (e *Earlier) readProcesses(dir *folder.Folder) ([]growth.EarlierProcess, error) {
	processes, err := e.processes()
	if err != nil {
		return nil, err
	}
	byPID := make(map[int64]int) // index
	for i, p := range processes {
		byPID[int64(p.PID)] = i
	}

	samples := 0
	err = dir.ReadFile(folder.ProcessesFile, func(r io.Reader) error {
		_, err := rows.ReadProcesses(r, func(s *growth.ProcessSample) bool {
			i, ok := byPID[s.PID]
			if ok && s.Elapsed >= processes[i].From && samples < maxEarlierSamples {
				processes[i].Timeline = append(processes[i].Timeline, s.Sample)
				samples++
			}
			return false
		})
		return err
	})
	if err == nil && samples == maxEarlierSamples {
		err = fmt.Errorf("read %s: more than %d samples", folder.ProcessesFile, maxEarlierSamples)
	}
	return processes, err
}

// processes are from the summary. It is an error if one that was traced executed another program
// meanwhile: nothing shows the age of the new one.
func (e *Earlier) processes() ([]growth.EarlierProcess, error) {
	all := e.summary.Processes
	if len(all) > maxEarlierProcesses {
		return nil, fmt.Errorf("its %s names %d processes, more than %d", folder.SummaryFile,
			len(all), maxEarlierProcesses)
	}

	var processes []growth.EarlierProcess
	for i, p := range all {
		if knownRole(p.Role).IsWorker() && !p.Traced {
			continue
		}
		again := slices.ContainsFunc(all[i+1:], func(o summary.TreeProcess) bool { return o.PID == p.PID })
		switch {
		case again && p.Traced:
			return nil, fmt.Errorf("PID %d executed another program during that trace", p.PID)
		case again:
			continue
		}
		processes = append(processes, e.process(p))
	}
	return processes, nil
}

// process returns a process as it was before this trace.
func (e *Earlier) process(p summary.TreeProcess) growth.EarlierProcess {
	ticks := min(max(p.StartTicks, 0), maxStartTicks)
	started := time.Duration(min(e.summary.Target.MonotonicS, 1e9) * float64(time.Second))
	m := growth.Member{
		Process: growth.Process{
			PID: p.PID, Parent: p.Parent, Start: ticks, Role: knownRole(p.Role), Rank: growth.Unknown,
			Born:    time.Duration(ticks)*(time.Second/ticksPerSecond) - started,
			Command: commandName(p.Command),
		},
		Traced: p.Traced, From: secondsOf(p.FirstS),
	}
	if p.Rank != nil {
		m.Rank = *p.Rank
	}
	m.Identity = p.Identity.Restored(m.Role)
	if main := e.summary.Process; main.PID == p.PID {
		m.Executable = growth.Truncate(growth.Printable(main.Executable), maxCommandBytes)
	}
	return growth.EarlierProcess{Member: m}
}

func commandName(name string) string {
	return growth.Truncate(growth.Printable(name), maxCommandBytes)
}

// knownRole is a role of a forged summary, as far as there is such a role.
func knownRole(r growth.Role) growth.Role {
	switch r {
	case growth.RoleTrainer, growth.RoleRank, growth.RoleLauncher, growth.RoleCompileWorker,
		growth.RoleLoaderWorker, growth.RoleWorker:
		return r
	}
	return growth.RoleOther
}

// secondsOf is a time of a forged summary, as far as a time can be.
func secondsOf(seconds float64) time.Duration {
	const most = 1e9 // 31 years
	return time.Duration(min(max(seconds, -most), most) * float64(time.Second))
}

// readMarks reads the marks and the gaps of the earlier trace.
func (e *Earlier) readMarks(now time.Duration) {
	s := e.summary
	for _, m := range s.Marks[:min(len(s.Marks), maxEarlierMarks)] {
		if at, text := secondsOf(m.AtS), MarkText(m.Text); at <= now && text != "" {
			e.history.Marks = append(e.history.Marks, growth.Mark{At: at, Text: text})
		}
	}
	for _, g := range s.Gaps[:min(len(s.Gaps), maxEarlierGaps)] {
		if 0 <= g.FromS && g.FromS < g.ToS && secondsOf(g.ToS) <= e.last {
			e.gaps = append(e.gaps, g)
		}
	}
}

// addSteps adds the steps of the earlier trace to the steps of its processes.
func (e *Earlier) addSteps(tree growth.TreeSample) {
	if e == nil {
		return
	}
	for i, m := range tree.Members {
		if s := &tree.Processes[i].Sample; s.Steps != growth.Unknown {
			s.Steps += e.steps[processKey{m.PID, m.Start}]
		}
	}
}

// searches are who kept the growing memory of the traced processes.
func (e *Earlier) searches() (all []keeper.Search) {
	if e == nil {
		return nil
	}
	for _, pid := range e.traced() {
		p, err := process.OpenAny(pid)
		if err != nil {
			continue // it has ended
		}
		if e.CheckProgram(p) == nil {
			all = append(all, summary.SearchesOf(e.summary, pid)...)
		}
		p.Close()
	}
	return all
}

// Continued is the earlier trace in the summary of one that began at a time.
func (e *Earlier) Continued(began time.Duration) *summary.Continued {
	if e == nil {
		return nil
	}
	return &summary.Continued{
		Folder: e.path, BeganS: summary.Seconds(began), GapS: summary.Seconds(began - e.last),
	}
}

// gapsUntil are the times until then in which nothing was sampled.
func (e *Earlier) gapsUntil(began time.Duration) []summary.Gap {
	if e == nil {
		return nil
	}
	return append(slices.Clone(e.gaps), summary.Gap{
		FromS: summary.Seconds(e.last), ToS: summary.Seconds(began),
	})
}

// A Target is the process that the user named.
type Target struct {
	summary.Process
	StartTicks int64 // as growth.Process.Start; 0: unknown
}

// summary identifies the target of a trace that started at a time of CLOCK_MONOTONIC, in ns; nil:
// the kernel does not say.
func (t *Target) summary(started uint64) *summary.Target {
	boot, err := process.BootID()
	if err != nil || t.StartTicks == 0 {
		return nil
	}
	return &summary.Target{
		PID: t.PID, StartTicks: t.StartTicks, BootID: boot,
		MonotonicS: summary.Seconds(time.Duration(started)),
	}
}
