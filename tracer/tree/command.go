package tree

import (
	"path"
	"slices"
	"strings"
)

// A command is a command line taken apart.
type command struct {
	program string // base name
	python  bool
	// What Python runs: a script, a module (-m) or code (-c).
	script, module, code string
}

func parseCommand(arguments []string) command {
	if len(arguments) == 0 {
		return command{}
	}
	c := command{program: path.Base(strings.TrimPrefix(arguments[0], "-"))} // login shells have a dash
	c.python = strings.HasPrefix(c.program, "python") || strings.HasPrefix(c.program, "pypy")
	if !c.python {
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
	return c.module == module || strings.HasSuffix(c.script, file+".py") || strings.HasSuffix(c.script, file+"/__main__.py") ||
		strings.HasSuffix(c.script, file)
}

// imports reports whether Python runs code that begins with what multiprocessing writes to start its helpers.
func (c command) imports(module string) bool {
	return strings.HasPrefix(c.code, "from "+module+" import ")
}

// name by which the command is known: that of the script if Python runs one.
func (c command) name() string {
	if c.script != "" {
		return strings.TrimSuffix(path.Base(c.script), ".py")
	}
	return c.program
}

// launchers start what trains and wait for it.
var launchers = []string{
	"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", // shells
	"uv", "uvx", "poetry", "pipenv", "pipx", "pdm", "hatch", "rye", "pixi", "conda", "mamba", "micromamba", // environments
	"env", "nohup", "timeout", "nice", "ionice", "chrt", "taskset", "numactl", "setsid", "stdbuf", "script", "time", "xargs",
	"make", "parallel", "watch", "flock", "unbuffer", // wrappers
	"sudo", "su", "doas", "runuser", "setpriv", "chroot", "unshare", "nsenter", // identity
	"docker-init", "tini", "dumb-init", "catatonit", "s6-svscan", "supervisord", "systemd", "init", "screen", "tmux", "tmux: server",
	"strace", "ltrace", "gdb", "perf", "nsys", "ncu", "heaptrack", "valgrind", // observers
	"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "orterun", "orted",
	"prterun", "prted", "srun", "slurmstepd", // distributed
}

var launcherModules = []string{
	"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "accelerate.commands.accelerate_cli",
	"deepspeed.launcher.runner", "deepspeed.launcher.launch", "horovod.runner", "poetry", "pipenv", "uv",
}

func (c command) isLauncher() bool {
	return slices.Contains(launchers, c.name()) || slices.ContainsFunc(launcherModules, c.runs)
}

// helpers run beside a trainer.
var helpers = []string{
	"nvidia-smi", "nvtop", "wandb", "wandb-core", "wandb-service", "tensorboard", "tee", "cat", "tail", "grep", "sed", "awk", "sleep",
	"ptxas", "nvcc", "cicc", "gcc", "g++", "cc1", "cc1plus", "clang", "clang++", "c++", "cc", "as", "ld", "collect2", "ninja",
}

var helperModules = []string{"wandb", "tensorboard.main", "torch._inductor.autotune_process"}

func (c command) isHelper() bool {
	return c.imports("multiprocessing.resource_tracker") || c.imports("multiprocessing.semaphore_tracker") ||
		c.imports("multiprocessing.forkserver") || slices.Contains(helpers, c.name()) || slices.ContainsFunc(helperModules, c.runs)
}
