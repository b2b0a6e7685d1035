package tree

import (
	"os"
	"sync"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// Environment variables with the ID of a run or a job.
const (
	torchRunID   = "TORCHELASTIC_RUN_ID"
	slurmJobID   = "SLURM_JOB_ID"
	rayJobID     = "RAY_JOB_ID"
	kubeflowJob  = "KUBEFLOW_TRAINING_JOB_ID"
	nodeVariable = "NODE_NAME" // of allocscope itself
)

// identityVariables returns the names of all variables that are read of a process. No others are:
// an environment has passwords.
func identityVariables() []string {
	return append(rankVariables(), torchRunID, slurmJobID, rayJobID, kubeflowJob)
}

// IdentityOf returns the job and the rank of a process. A value that cannot be read is unknown.
func IdentityOf(p *process.Process) growth.Identity {
	program, _, _ := programOf(p, maxAncestors)
	role, rank := program.Role()
	return program.identity(p, role, rank)
}

// IdentityAmongAll is IdentityOf for any process of the machine: a process that is no Python and of
// no job trains nothing, and a worker without a trainer is none.
func IdentityAmongAll(p *process.Process) growth.Identity {
	program, _, isOfJob := programOf(p, maxAncestors)
	role, rank := program.roleAmongAll(isOfJob || program.job() != "")
	return program.identity(p, role, rank)
}

// programOf returns the evidence of a process's role, by so many generations of ancestors, and
// whether its parent is of the same job.
func programOf(
	p *process.Process, ancestors int,
) (program Program, image process.Image, isOfJob bool) {
	program = Program{
		Name: p.Name, Arguments: p.Arguments, Environment: p.Environment(identityVariables()...),
	}
	stat, err := p.Stat()
	if err != nil || stat.Parent <= 1 || ancestors == 0 || p.Stalled() != nil {
		return program, stat.Image, false
	}
	parent, err := process.Open(stat.Parent)
	if err != nil {
		return program, stat.Image, false
	}
	defer parent.Close()

	above, imageAbove, isAboveOfJob := programOf(parent, ancestors-1)
	program.Forked = stat.Image == imageAbove && !imageAbove.IsZero()
	role, _ := above.roleAmongAll(isAboveOfJob)
	return program, stat.Image, program.setParent(above, role)
}

// identity returns the identity of a process with this evidence.
func (p Program) identity(of *process.Process, role growth.Role, rank int) growth.Identity {
	id := growth.UnknownIdentity()
	id.Role, id.Rank = role, rank
	if n, isRank := p.rank(); isRank && id.Role == growth.RoleRank {
		id.LocalRank, id.WorldSize = n.local, n.size
	}

	id.Job, id.RunID, id.SlurmJob = p.job(), p.text(torchRunID), p.text(slurmJobID)
	id.Node, id.Pod, id.Container = nodeName(), of.Pod(), of.Container()
	return id
}

// job returns the ID of its job; empty: it has none.
func (p Program) job() string {
	for _, name := range []string{rayJobID, torchRunID, kubeflowJob, slurmJobID} {
		if job := p.text(name); job != "" && job != noRunID {
			return job
		}
	}
	return ""
}

// text is a variable of the environment, bounded.
func (p Program) text(variable string) string {
	return growth.Truncate(p.Environment[variable], growth.MaxIdentityBytes)
}

// nodeName is the name of the host: NODE_NAME, since a pod has a host name of its own, or the host
// name.
var nodeName = sync.OnceValue(func() string {
	name := os.Getenv(nodeVariable)
	if name == "" {
		name, _ = os.Hostname()
	}
	return growth.Truncate(growth.Printable(name), growth.MaxIdentityBytes)
})
