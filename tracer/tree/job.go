package tree

import (
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// A Job has the marks that the processes of one training job share. The same user, session, cgroup
// or interactive shell makes no job.
type Job struct {
	// launcher is the PID of the outermost program that launched the process, or of the process
	// itself.
	launcher int

	// start of the launcher distinguishes it from a later process with its PID.
	start time.Duration

	// run has the identifiers of the job's run; unset ones are empty, and all are for a process that
	// is no rank. rank is the process's number in it.
	run  []string
	rank int
}

// noRunID is TORCHELASTIC_RUN_ID of a run that was given none: the default of torchrun's --rdzv-id.
const noRunID = "none"

// runVariables are the environment variables that together identify a run of several ranks: of
// torchrun, of Slurm, and of PyTorch's env:// initialization.
var runVariables = [][]string{
	{"TORCHELASTIC_RUN_ID"},
	{"SLURM_JOB_ID", "SLURM_STEP_ID"},
	{"MASTER_ADDR", "MASTER_PORT"},
}

// maxAncestors bounds the search for launchers.
const maxAncestors = 64

// JobOf returns the job of a process.
func JobOf(p *process.Process) Job {
	job := Job{launcher: p.PID}
	job.run, job.rank = runOf(p)

	for range maxAncestors {
		stat, err := process.ReadStat(job.launcher)
		if err != nil {
			break
		}
		job.start = stat.Start
		if stat.Parent <= 1 || !isJobLauncher(stat.Parent) {
			break
		}
		job.launcher = stat.Parent
	}
	return job
}

// isJobLauncher reports whether a process launches one job.
func isJobLauncher(pid int) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	return launchesJob(p.Arguments)
}

// launchesJob reports whether a command launches one job. A terminal, a service manager and a shell
// in which somebody types launch many.
func launchesJob(arguments []string) bool {
	c := parseCommand(arguments)
	isTyped := slices.Contains(shells, c.name()) && !runsScript(arguments)
	return c.isLauncher() && !isTyped && !slices.Contains(sessionLaunchers, c.name())
}

// shellOptions are those options of shells that take the next argument as their value. Terminals of
// editors start their shells with the first two.
var shellOptions = []string{"--init-file", "--rcfile", "-o", "+o", "-O", "+O"}

// runsScript reports whether a shell runs a command (-c) or a script, and then ends.
func runsScript(arguments []string) bool {
	for i := 1; i < len(arguments); i++ {
		switch a := arguments[i]; {
		case slices.Contains(shellOptions, a):
			i++
		case !strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "+"):
			return true
		case !strings.HasPrefix(a, "--") && strings.Contains(a, "c"):
			return true
		}
	}
	return false
}

// runOf returns the number of a rank, and the identifiers of its run in the order of runVariables.
// There are none for a process that is no rank: a shell may export the address of a run.
func runOf(p *process.Process) (run []string, rank int) {
	values := p.Environment(slices.Concat(rankVariables(), slices.Concat(runVariables...))...)

	run = make([]string, len(runVariables))
	numbers, isRank := Program{Arguments: p.Arguments, Environment: values}.rank()
	if !isRank {
		return run, numbers.rank
	}

	for i, names := range runVariables {
		var parts []string
		for _, name := range names {
			if value := values[name]; value != "" && value != noRunID {
				parts = append(parts, value)
			}
		}
		if len(parts) == len(names) {
			run[i] = strings.Join(parts, " ")
		}
	}
	return run, numbers.rank
}

// Has reports whether a process of the table belongs to the job: the launcher, a descendant of it,
// or another rank of the same run.
func (j Job) Has(pid int, table ProcessTable) bool {
	for ancestor, n := pid, 0; ancestor > 1 && n < maxAncestors; n++ {
		if ancestor == j.launcher && table[ancestor].start == j.start {
			return true
		}
		ancestor = table[ancestor].parent
	}

	if !slices.ContainsFunc(j.run, func(id string) bool { return id != "" }) {
		return false
	}
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()

	run, rank := runOf(p)
	for i, id := range run {
		if id != "" && id == j.run[i] && rank != j.rank {
			return true
		}
	}
	return false
}
