package tree

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
)

// A Job is what the processes of one training job have in common. The same user, session, cgroup or
// interactive shell makes no job.
type Job struct {
	// launcher is the PID of the outermost program that launched the process, or of the process
	// itself.
	launcher int

	// run has the identifiers of the job's run; unset ones are empty.
	run []string
}

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
	job := Job{launcher: p.PID, run: runOf(p)}

	pid := p.PID
	for range maxAncestors {
		stat, err := process.ReadStat(pid)
		if err != nil || stat.Parent <= 1 || !launchesJob(stat.Parent) {
			break
		}
		pid = stat.Parent
		job.launcher = pid
	}
	return job
}

// launchesJob reports whether a process launches one job. A terminal, a service manager and a shell
// in which somebody types launch many.
func launchesJob(pid int) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()

	c := parseCommand(p.Arguments)
	isTyped := slices.Contains(shells, c.name()) && !slices.ContainsFunc(p.Arguments[1:], isScript)
	return c.isLauncher() && !isTyped && !slices.Contains(sessionLaunchers, c.name())
}

// isScript reports whether an argument makes a shell run a script or a command, and then end.
func isScript(argument string) bool {
	return !strings.HasPrefix(argument, "-") ||
		!strings.HasPrefix(argument, "--") && strings.Contains(argument, "c")
}

// runOf returns the identifiers of a process's run, in the order of runVariables.
func runOf(p *process.Process) []string {
	const byDefault = "none" // torchrun's --rdzv-id
	values := p.Environment(slices.Concat(runVariables...)...)

	run := make([]string, len(runVariables))
	for i, names := range runVariables {
		var parts []string
		for _, name := range names {
			if value := values[name]; value != "" && value != byDefault {
				parts = append(parts, value)
			}
		}
		if len(parts) == len(names) {
			run[i] = strings.Join(parts, " ")
		}
	}
	return run
}

// Has reports whether a process of the table belongs to the job: the launcher, a descendant of it,
// or a rank of the same run.
func (j Job) Has(pid int, table ProcessTable) bool {
	for ancestor, n := pid, 0; ancestor > 1 && n < maxAncestors; n++ {
		if ancestor == j.launcher {
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

	for i, id := range runOf(p) {
		if id != "" && id == j.run[i] {
			return true
		}
	}
	return false
}
