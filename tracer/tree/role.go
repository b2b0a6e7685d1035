package tree

import (
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// A Program is what the role of a process is told by.
type Program struct {
	// Name is the kernel's short name of the main thread; Arguments is the command line.
	Name      string
	Arguments []string
	// Environment has the variables that number ranks, as they were when the program was executed.
	Environment map[string]string
	// Forked: the process is a copy of its parent and has executed nothing since.
	Forked bool
	// ParentRole and ParentArguments of the member that started it; empty if that is none.
	ParentRole      growth.Role
	ParentArguments []string
}

// Role tells what a process does in a training job, and which rank it is; growth.Unknown if it is none.
func (p Program) Role() (growth.Role, int) {
	if p.Forked {
		return p.forkedRole(), growth.Unknown
	}
	c := parseCommand(p.Arguments)
	switch {
	case c.runs("torch._inductor.compile_worker"):
		return growth.RoleCompileWorker, growth.Unknown
	case p.Name == "pt_data_worker", slices.Contains(p.Arguments, "--multiprocessing-fork"):
		return growth.RoleLoaderWorker, growth.Unknown
	case c.isHelper():
		return growth.RoleOther, growth.Unknown
	case c.isLauncher():
		return growth.RoleLauncher, growth.Unknown
	}
	trains := p.ParentRole == "" || p.ParentRole == growth.RoleLauncher || p.ParentRole == growth.RoleTrainer
	if rank, ok := p.rank(); ok && trains {
		return growth.RoleRank, rank
	}
	if trains && (c.python || p.ParentRole != growth.RoleTrainer) {
		return growth.RoleTrainer, growth.Unknown
	}
	return growth.RoleOther, growth.Unknown // a tool that a trainer calls
}

// forkedRole is that of a copy of the parent: those of trainers load data, and those of helpers help.
func (p Program) forkedRole() growth.Role {
	switch p.ParentRole {
	case growth.RoleTrainer, growth.RoleRank:
		return growth.RoleLoaderWorker
	case growth.RoleOther:
		if parseCommand(p.ParentArguments).imports("multiprocessing.forkserver") {
			return growth.RoleLoaderWorker
		}
	}
	return p.ParentRole
}

// A numbering is a variable that numbers ranks, and the one that tells how many there are.
type numbering struct{ rank, size string }

// numberings of PyTorch, Open MPI, PMIx, MPICH and Slurm, the surest first.
var numberings = []numbering{
	{"RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "PMI_SIZE"},
	{"SLURM_PROCID", "SLURM_NTASKS"},
	{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
}

func rankVariables() []string {
	var names []string
	for _, n := range numberings {
		names = append(names, n.rank, n.size)
	}
	return names
}

// rank finds the number of the rank in the environment, else in the arguments. One of one is no rank.
func (p Program) rank() (int, bool) {
	for _, n := range numberings {
		if rank, ok := rankNumber(p.Environment[n.rank]); ok {
			return rank, p.Environment[n.size] != "1"
		}
	}
	for i, argument := range p.Arguments {
		name, value, given := strings.Cut(argument, "=")
		if name != "--local_rank" && name != "--local-rank" {
			continue
		}
		if !given && i+1 < len(p.Arguments) {
			value = p.Arguments[i+1]
		}
		if rank, ok := rankNumber(value); ok {
			return rank, true
		}
	}
	return growth.Unknown, false
}

func rankNumber(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}
