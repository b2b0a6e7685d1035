package tree

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

const python = "/usr/bin/python3.11"

// commandsOf are command lines; those with arguments that hold spaces are separated by bars.
var commandsOf = map[growth.Role][]string{
	launcher: {
		"uv run train.py", "/home/u/.local/bin/uv run --with torch train.py", "uvx tool", "poetry run python train.py",
		python + "|/usr/bin/poetry|run|python|train.py", "conda run -n env python train.py", python + "|/opt/conda/bin/conda|run|x",
		"pipenv run x", "sh -c python train.py", "/bin/bash run.sh", "-bash", "-zsh", "dash -c x", "env A=1 python train.py", "nohup python x",
		"timeout 5 python x", "nice -n 5 python x", "sudo -E python x", "strace -f python x", "torchrun --nproc-per-node 8 train.py",
		python + "|/usr/bin/torchrun|train.py", python + "|-m|torch.distributed.run|train.py",
		python + "|-u|-m|torch.distributed.launch|train.py", python + "|/usr/lib/python3/dist-packages/torch/distributed/run.py|train.py",
		"accelerate launch train.py", python + "|-m|accelerate.commands.launch|train.py", "deepspeed train.py",
		python + "|-u|-m|deepspeed.launcher.launch|--world_info=x|train.py", "mpirun -np 4 python train.py", "srun python train.py",
		"tini -- python train.py",
	},
	compiler: {
		python + "|/usr/lib/python3/dist-packages/torch/_inductor/compile_worker/__main__.py|--pickler=x|--kind=fork",
		python + "|-m|torch._inductor.compile_worker|--workers=32",
	},
	loader: {python + "|-c|from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)|--multiprocessing-fork"},
	other: {
		python + "|-c|from multiprocessing.resource_tracker import main;main(5)",
		python + "|-s|-c|from multiprocessing.semaphore_tracker import main;main(5)",
		python + "|-c|from multiprocessing.forkserver import main; main(5, 6, [])",
		"nvidia-smi -l 1", "wandb-core --port-filename x", python + "|-m|wandb|service", python + "|/usr/bin/wandb|service",
		"tee log", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet x.cpp", python + "|/usr/bin/tensorboard|--logdir|x",
	},
	trainer: {
		"python train.py", python + "|-X|dev|-W|ignore|-u|train.py", "python3", python + "|-m|train", "./a.out", "pypy3 x.py", "",
		"/opt/sh/trainer", "python -m ipykernel_launcher -f x", "python sh.py.txt", python + "|-c|import torch", "ruby x.rb",
	},
}

func TestCommandsHaveTheirRoles(t *testing.T) {
	for role, commands := range commandsOf {
		for _, text := range commands {
			separator := " "
			if strings.Contains(text, "|") {
				separator = "|"
			}
			if got, number := (Program{Arguments: strings.Split(text, separator)}).Role(); got != role || number != growth.Unknown {
				t.Errorf("%q is a %s (%d), want %s", text, got, number, role)
			}
		}
	}
}

func TestRolesDependOnTheParent(t *testing.T) {
	python, tool := []string{"python3", "train.py"}, []string{"git", "status"}
	forkserver := []string{"python3", "-c", "from multiprocessing.forkserver import main; main(5)"}
	for _, c := range []struct {
		name string
		p    Program
		want growth.Role
	}{
		{"a fork of a trainer", Program{Arguments: python, Forked: true, ParentRole: trainer}, loader},
		{"a fork of a rank", Program{Arguments: python, Forked: true, ParentRole: growth.RoleRank}, loader},
		{"a fork of a loader", Program{Arguments: python, Forked: true, ParentRole: loader}, loader},
		{"a fork of a compile worker", Program{Arguments: python, Forked: true, ParentRole: compiler}, compiler},
		{"a subshell", Program{Arguments: []string{"sh"}, Forked: true, ParentRole: launcher}, launcher},
		{"a fork of the fork server", Program{Arguments: forkserver, Forked: true, ParentRole: other, ParentArguments: forkserver}, loader},
		{"a fork of a helper", Program{Arguments: tool, Forked: true, ParentRole: other, ParentArguments: tool}, other},
		{"a named loader", Program{Name: "pt_data_worker", Arguments: python, ParentRole: trainer}, loader},
		{"a program of a launcher", Program{Arguments: tool, ParentRole: launcher}, trainer},
		{"a tool of a trainer", Program{Arguments: tool, ParentRole: trainer}, other},
		{"a Python program of a trainer", Program{Arguments: python, ParentRole: trainer}, trainer},
		{"a Python program of a rank", Program{Arguments: python, ParentRole: growth.RoleRank}, other},
		{"a Python program of a loader", Program{Arguments: python, ParentRole: loader}, other},
		{"a shell of a rank", Program{Arguments: []string{"sh", "-c", "x"}, ParentRole: growth.RoleRank}, launcher},
	} {
		if got, number := c.p.Role(); got != c.want || number != growth.Unknown {
			t.Errorf("%s is a %s (%d), want %s", c.name, got, number, c.want)
		}
	}
}

func TestRanksAreNumbered(t *testing.T) {
	python := []string{"python3", "train.py"}
	type variables = map[string]string
	for _, c := range []struct {
		name string
		p    Program
		want int // growth.Unknown: no rank
	}{
		{"RANK", Program{Arguments: python, Environment: variables{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}}, 3},
		{"rank 0", Program{Arguments: python, Environment: variables{"RANK": "0", "WORLD_SIZE": "2"}}, 0},
		{"one of one", Program{Arguments: python, Environment: variables{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}}, growth.Unknown},
		{"LOCAL_RANK alone", Program{Arguments: python, Environment: variables{"LOCAL_RANK": "2"}}, 2},
		{"Open MPI", Program{Arguments: python, Environment: variables{"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}}, 5},
		{"Slurm", Program{Arguments: python, Environment: variables{"SLURM_PROCID": "4", "SLURM_NTASKS": "8"}}, 4},
		{"a Slurm job of one task", Program{Arguments: python, Environment: variables{"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}}, growth.Unknown},
		{"--local_rank=", Program{Arguments: []string{"python3", "train.py", "--local_rank=7"}}, 7},
		{"--local-rank", Program{Arguments: []string{"python3", "train.py", "--local-rank", "6"}}, 6},
		{"--local-rank at the end", Program{Arguments: []string{"python3", "train.py", "--local-rank"}}, growth.Unknown},
		{"nonsense", Program{Arguments: python, Environment: variables{"RANK": "-1", "LOCAL_RANK": "99999999999"}}, growth.Unknown},
		{"a child of a launcher", Program{Arguments: python, ParentRole: launcher, Environment: variables{"RANK": "1"}}, 1},
		{"a child of a trainer", Program{Arguments: python, ParentRole: trainer, Environment: variables{"RANK": "1"}}, 1},
		{"a child of a rank", Program{Arguments: python, ParentRole: growth.RoleRank, Environment: variables{"RANK": "1"}}, growth.Unknown},
		{"a launcher", Program{Arguments: []string{"sh", "-c", "x"}, Environment: variables{"RANK": "1"}}, growth.Unknown},
		{"a fork", Program{Arguments: python, Forked: true, ParentRole: trainer, Environment: variables{"RANK": "1"}}, growth.Unknown},
	} {
		role, number := c.p.Role()
		if number != c.want || (role == growth.RoleRank) != (c.want != growth.Unknown) {
			t.Errorf("%s: a %s, rank %d, want %d", c.name, role, number, c.want)
		}
	}
}

func FuzzRole(f *testing.F) {
	f.Add("python3\x00-m\x00x", "RANK", "3", true)
	f.Add("python3\x00-X", "", "", false)
	f.Add("--local-rank", "", "", false)
	f.Fuzz(func(t *testing.T, arguments, variable, value string, forked bool) {
		p := Program{Arguments: strings.Split(arguments, "\x00"), Environment: map[string]string{variable: value}, Forked: forked, ParentRole: trainer}
		if role, number := p.Role(); role == "" || (role == growth.RoleRank) != (number >= 0) {
			t.Errorf("%q, rank %d", role, number)
		}
	})
}
