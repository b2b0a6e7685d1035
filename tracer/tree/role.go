package tree

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// A Program is the evidence from which the role of a process is derived.
type Program struct {
	// Name is the kernel's short name of the main thread; Arguments is the command line.
	Name      string
	Arguments []string

	// Environment holds the variables that number ranks, as of execve(2).
	Environment map[string]string

	// Forked: the process is a copy of its parent and has executed nothing since. ParentService is
	// then the service of the parent.
	Forked        bool
	ParentService string

	// ParentRole and ParentArguments of the member that started it; empty if none did.
	ParentRole      growth.Role
	ParentArguments []string
}

// Role returns the role of a process in a training job and its rank; growth.Unknown if it is no
// rank.
func (p Program) Role() (growth.Role, int) {
	if role := p.workerRole(); role != "" {
		return role, growth.Unknown
	}
	if p.Forked {
		return p.forkedRole(), growth.Unknown
	}
	return p.ownRole()
}

// loaderName is the name that PyTorch gives to the main thread of a DataLoader worker, from 2.6 on
// (torch/utils/data/_utils/worker.py). Without it a worker is like any other fork.
const loaderName = "pt_data_worker"

// workerRole returns the role of a worker by its name or its arguments; empty: they are of none.
func (p Program) workerRole() growth.Role {
	switch {
	case parseCommand(p.Arguments).runs("torch._inductor.compile_worker"):
		return growth.RoleCompileWorker
	case p.Name == loaderName:
		return growth.RoleLoaderWorker
	case slices.Contains(p.Arguments, multiprocessingFork):
		return growth.RoleWorker
	}
	return ""
}

// ownRole returns the role and the rank of a program that serves no trainer.
func (p Program) ownRole() (growth.Role, int) {
	c := parseCommand(p.Arguments)
	switch {
	case c.isHelper():
		return growth.RoleOther, growth.Unknown
	case c.isLauncher():
		return growth.RoleLauncher, growth.Unknown
	}

	mayTrain := p.ParentRole == "" || p.ParentRole == growth.RoleLauncher ||
		p.ParentRole == growth.RoleTrainer
	if n, ok := p.rank(); ok && mayTrain {
		return growth.RoleRank, n.rank
	}
	if mayTrain && (c.isPython || p.ParentRole != growth.RoleTrainer) {
		return growth.RoleTrainer, growth.Unknown
	}
	return growth.RoleOther, growth.Unknown // a tool that a trainer calls
}

// setParent takes over the known facts of the parent, which counts within one job: of a launcher,
// or of a process that trains. It reports whether both are of one.
func (p *Program) setParent(parent Program, role growth.Role) (isOfJob bool) {
	launches := role == growth.RoleLauncher && launchesJob(parent.Arguments)
	isOfJob = launches || role != growth.RoleLauncher && role != growth.RoleOther
	if isOfJob || p.Forked {
		p.ParentRole, p.ParentArguments = role, parent.Arguments
	}
	return isOfJob
}

// roleAmongAll is Role of any process of the machine: a process that is no Python and of no job
// trains nothing. Any process can have the name of a worker: only a process that a trainer or a
// worker has started is one.
func (p Program) roleAmongAll(isOfJob bool) (growth.Role, int) {
	role, rank := p.Role()
	serves := p.ParentRole != "" && p.ParentRole != growth.RoleLauncher &&
		p.ParentRole != growth.RoleOther
	switch isNamed := !serves && p.workerRole() != ""; {
	case isNamed && p.Forked:
		role, rank = p.forkedRole(), growth.Unknown
	case isNamed:
		role, rank = p.ownRole()
	}

	if role == growth.RoleTrainer && !isOfJob && !parseCommand(p.Arguments).isPython {
		role = growth.RoleOther
	}
	return role, rank
}

// forkedRole returns the role of a copy of the parent: forks of trainers work for them, and so do
// forks of the fork server; other forks share their parent's role.
func (p Program) forkedRole() growth.Role {
	switch p.ParentRole {
	case growth.RoleTrainer, growth.RoleRank, growth.RoleLoaderWorker:
		return growth.RoleWorker
	case growth.RoleOther:
		if parseCommand(p.ParentArguments).imports("multiprocessing.forkserver") {
			return growth.RoleWorker
		}
	}
	return p.ParentRole
}

// rankVariable names the environment variables for the number of a rank, of all ranks, and of the
// rank on its node.
type rankVariable struct{ rank, size, local string }

// rankVariableNames are the variables of PyTorch, Open MPI, PMI (MPICH), Slurm and torchrun, the
// most specific first.
var rankVariableNames = []rankVariable{
	{"RANK", "WORLD_SIZE", localRank},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
	{localRank, "LOCAL_WORLD_SIZE", localRank},
}

const localRank = "LOCAL_RANK"

// rankVariables returns all names.
func rankVariables() []string {
	var names []string
	for _, v := range rankVariableNames {
		names = append(names, v.rank, v.size, v.local)
	}
	return names
}

// rankNumbers are the numbers of a rank among all and on its node, and the number of all ranks;
// growth.Unknown for each that is not known.
type rankNumbers struct{ rank, local, size int }

// rank returns the numbers from the environment, or else from the arguments. A single process is
// not a rank.
func (p Program) rank() (n rankNumbers, isRank bool) {
	for _, v := range rankVariableNames {
		if rank, ok := parseRank(p.Environment[v.rank]); ok {
			n := rankNumbers{rank, p.number(v.local, localRank), p.number(v.size)}
			if v.rank == localRank {
				n.size = growth.Unknown // the size on the node
			}
			return n, p.Environment[v.size] != "1"
		}
	}

	for i, argument := range p.Arguments {
		name, value, hasValue := strings.Cut(argument, "=")
		if name != "--local_rank" && name != "--local-rank" {
			continue
		}
		if !hasValue && i+1 < len(p.Arguments) {
			value = p.Arguments[i+1]
		}
		if rank, ok := parseRank(value); ok {
			return rankNumbers{rank, rank, growth.Unknown}, true
		}
	}
	return rankNumbers{growth.Unknown, growth.Unknown, growth.Unknown}, false
}

// number returns the first of these variables that has a number; growth.Unknown: none has.
func (p Program) number(names ...string) int {
	for _, name := range names {
		if n, ok := parseRank(p.Environment[name]); ok {
			return n
		}
	}
	return growth.Unknown
}

func parseRank(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

// A command is a parsed command line.
type command struct {
	program  string // base name
	isPython bool

	// The code that Python runs: a script, a module (-m) or code (-c).
	script, module, code string
}

func parseCommand(arguments []string) command {
	if len(arguments) == 0 {
		return command{}
	}

	program := strings.TrimPrefix(arguments[0], "-") // login shells have a dash
	program, _, _ = strings.Cut(program, ": ")       // daemons say what they do: "slurmstepd: [2.0]"
	c := command{program: path.Base(program)}
	c.isPython = strings.HasPrefix(c.program, "python") || strings.HasPrefix(c.program, "pypy")
	if !c.isPython {
		return c
	}

	for i := 1; i < len(arguments); i++ {
		value := ""
		if i+1 < len(arguments) {
			value = arguments[i+1]
		}
		switch argument := arguments[i]; {
		case argument == "-m":
			c.module = value
			return c
		case argument == "-c":
			c.code = value
			return c
		case argument == "-X" || argument == "-W":
			i++
		case !strings.HasPrefix(argument, "-"):
			c.script = argument
			return c
		}
	}
	return c
}

// runs reports whether Python runs a module, by its name or by the path of its file.
func (c command) runs(module string) bool {
	file := "/" + strings.ReplaceAll(module, ".", "/")
	return c.module == module || strings.HasSuffix(c.script, file) ||
		strings.HasSuffix(c.script, file+".py") || strings.HasSuffix(c.script, file+"/__main__.py")
}

// imports reports whether Python runs the code by which multiprocessing starts its helpers
// (Lib/multiprocessing/spawn.py and its like).
func (c command) imports(module string) bool {
	return strings.HasPrefix(c.code, "from "+module+" import ")
}

// service names the program that the process works for. The title that a server gives to its
// process later, such as "gunicorn: worker", changes nothing.
func (p Program) service() string {
	c := parseCommand(p.Arguments)
	switch {
	case p.ParentService != "" && (p.Forked || c.isOfMultiprocessing() ||
		slices.Contains(p.Arguments, multiprocessingFork)):
		return p.ParentService
	case c.module != "":
		return growth.Truncate(growth.Printable(c.module), growth.MaxIdentityBytes)
	case c.script != "":
		c.program = path.Base(c.script)
	}
	name := strings.Trim(c.program, "[]:") // "[celeryd: worker]"
	return growth.Truncate(growth.Printable(name), growth.MaxIdentityBytes)
}

// multiprocessingFork is the argument of processes that Python's multiprocessing starts by
// execve(2) (Lib/multiprocessing/spawn.py).
const multiprocessingFork = "--multiprocessing-fork"

// name returns the name by which a command is known: the script's if Python runs one.
func (c command) name() string {
	if c.script != "" {
		return strings.TrimSuffix(path.Base(c.script), ".py")
	}
	return c.program
}

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"}

// sessionLaunchers start programs that have nothing to do with each other.
var sessionLaunchers = []string{
	"docker-init", "tini", "dumb-init", "catatonit", "s6-svscan", "supervisord", "systemd", "init",
	"screen", "tmux",
}

// launchers start a training program and wait for it.
var launchers = slices.Concat(shells, sessionLaunchers, []string{
	// environments
	"uv", "uvx", "poetry", "pipenv", "pipx", "pdm", "hatch", "rye", "pixi", "conda", "mamba",
	"micromamba",
	// wrappers
	"env", "nohup", "timeout", "nice", "ionice", "chrt", "taskset", "numactl", "setsid", "stdbuf",
	"script", "time", "xargs", "make", "parallel", "watch", "flock", "unbuffer",
	// users and namespaces
	"sudo", "su", "doas", "runuser", "setpriv", "chroot", "unshare", "nsenter",
	// debuggers and profilers
	"strace", "ltrace", "gdb", "perf", "nsys", "ncu", "heaptrack", "valgrind",
	// distributed jobs
	"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "mpiexec.hydra",
	"hydra_pmi_proxy", "orterun", "orted", "prterun", "prted", "srun", "slurmstepd",
})

var launcherModules = []string{
	"torch.distributed.run", "torch.distributed.launch",
	"accelerate.commands.launch", "accelerate.commands.accelerate_cli",
	"deepspeed.launcher.runner", "deepspeed.launcher.launch",
	"horovod.runner", "poetry", "pipenv", "uv",
}

func (c command) isLauncher() bool {
	return slices.Contains(launchers, c.name()) || slices.ContainsFunc(launcherModules, c.runs)
}

// helpers run beside a trainer: monitoring, pipes, compilers.
var helpers = []string{
	"nvidia-smi", "nvtop", "wandb", "wandb-core", "wandb-service", "tensorboard",
	"tee", "cat", "tail", "grep", "sed", "awk", "sleep",
	"ptxas", "nvcc", "cicc", "gcc", "g++", "cc1", "cc1plus", "clang", "clang++", "c++", "cc", "as",
	"ld", "collect2", "ninja",
}

var helperModules = []string{"wandb", "tensorboard.main", "torch._inductor.autotune_process"}

// multiprocessingHelpers are modules of Python's multiprocessing.
var multiprocessingHelpers = []string{
	"multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker",
	"multiprocessing.forkserver",
}

func (c command) isOfMultiprocessing() bool {
	return slices.ContainsFunc(multiprocessingHelpers, c.imports)
}

func (c command) isHelper() bool {
	return c.isOfMultiprocessing() ||
		slices.Contains(helpers, c.name()) || slices.ContainsFunc(helperModules, c.runs)
}

// IsPython reports whether a command line is a Python's.
func IsPython(arguments []string) bool { return parseCommand(arguments).isPython }
