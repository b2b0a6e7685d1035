package tree

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Job has the marks that the processes of one training job share: the launcher that started them,
// the run of which they are ranks, or a container. The same user, session or interactive shell makes
// no job, nor does a script that has started the script that started the process.
type Job struct {
	// named is the process itself, and namedStart its start.
	named      int
	namedStart time.Duration

	// launcher is the PID of the program that launched the process: of several, one within the other,
	// the outermost up to the first script of a shell. It is the process itself where none did.
	launcher int

	// start of the launcher distinguishes it from a later process with its PID.
	start time.Duration

	// run has the identifiers of the job's run; unset ones are empty, and all are for a process that
	// is no rank. rank is the process's number in it.
	run  []string
	rank int

	// container of the process; empty: it runs in none, or in the container of allocscope, where
	// anything may run.
	container string
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
	job := Job{named: p.PID, launcher: p.PID, container: p.Container()}
	job.run, job.rank = runOf(p)
	if job.container == ownContainer() {
		job.container = ""
	}

	hasScript := false
	for range maxAncestors {
		stat, err := process.ReadStat(job.launcher)
		if err != nil {
			break
		}
		job.start = stat.Start
		if job.launcher == job.named {
			job.namedStart = stat.Start
		}
		launches, isShell := jobLauncher(stat.Parent)
		if stat.Parent <= 1 || !launches || hasScript {
			break
		}
		job.launcher, hasScript = stat.Parent, isShell
	}
	return job
}

// ownContainer is the container that allocscope runs in; empty: it runs in none.
func ownContainer() string {
	p, err := process.OpenAny(os.Getpid())
	if err != nil {
		return ""
	}
	defer p.Close()
	return p.Container()
}

// jobLauncher reports whether a process launches one job, and whether it is a shell.
func jobLauncher(pid int) (launches, isShell bool) {
	p, err := process.Open(pid)
	if err != nil {
		return false, false
	}
	defer p.Close()
	return launchesJob(p.Arguments), slices.Contains(shells, parseCommand(p.Arguments).name())
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

// Relation is how a process of the table is related to the process of the job.
func (j Job) Relation(pid int, table ProcessTable) growth.Relation {
	switch {
	case table.isBelow(pid, j.named, j.namedStart):
		return growth.RelationStarted
	case j.Has(pid, table):
		return growth.RelationJob
	}
	return growth.RelationMachine
}

// Has reports whether a process of the table belongs to the job: the launcher, a descendant of it,
// another rank of the same run, or a process of the same container.
func (j Job) Has(pid int, table ProcessTable) bool {
	if table.isBelow(pid, j.launcher, j.start) {
		return true
	}

	hasRun := slices.ContainsFunc(j.run, func(id string) bool { return id != "" })
	if !hasRun && j.container == "" {
		return false
	}
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	if j.container != "" && p.Container() == j.container {
		return true
	}

	run, rank := runOf(p)
	for i, id := range run {
		if id != "" && id == j.run[i] && rank != j.rank {
			return true
		}
	}
	return false
}
