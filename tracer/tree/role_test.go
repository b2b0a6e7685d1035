package tree

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// TestRoleOfCommand reads PY as the path of Python. Arguments are separated by bars if one contains
// a space.
func TestRoleOfCommand(t *testing.T) {
	for role, commands := range map[string][]string{
		"launcher": {
			"uvx tool", "/home/u/.local/bin/uv run --with torch train.py", "sh -c python train.py",
			"-bash", "PY|/usr/bin/torchrun|train.py", "PY|-m|torch.distributed.run|train.py",
			"PY|/usr/lib/python3/dist-packages/torch/distributed/run.py|train.py",
			"PY|-u|-m|deepspeed.launcher.launch|--world_info=x|train.py",
			"slurmstepd: [2.0]|", "tmux: server|",
		},
		"compiler": {
			"PY|/usr/lib/python3/dist-packages/torch/_inductor/compile_worker/__main__.py|--x",
			"PY|-m|torch._inductor.compile_worker|--workers=32",
		},
		"worker": {
			"PY|-c|from multiprocessing.spawn import spawn_main; main()|--multiprocessing-fork",
		},
		"other": {
			"PY|-c|from multiprocessing.resource_tracker import main;main(5)",
			"PY|-s|-c|from multiprocessing.semaphore_tracker import main;main(5)",
			"PY|-c|from multiprocessing.forkserver import main; main(5, 6, [])",
			"tee log", "PY|-m|wandb|service", "PY|/usr/bin/tensorboard|--logdir|x",
			"/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet x.cpp",
		},
		"trainer": {
			"python train.py", "PY|-X|dev|-W|ignore|-u|train.py", "python3", "PY|-m|train",
			"./a.out", "pypy3 x.py", "", "/opt/sh/trainer", "python -m ipykernel_launcher -f x",
			"python sh.py.txt", "PY|-c|import torch", "ruby x.rb",
		},
	} {
		for _, text := range commands {
			arguments := strings.Split(text, " ")
			if strings.Contains(text, "|") {
				text = strings.Replace(text, "PY", "/usr/bin/python3.11", 1)
				arguments = strings.Split(text, "|")
			}
			got, rank := Program{Arguments: arguments}.Role()
			if got != roles[role] || rank != growth.Unknown {
				t.Errorf("%q is a %s (%d), want %s", text, got, rank, role)
			}
		}
	}
}

func TestRoleByParent(t *testing.T) {
	const python, tool, forkserver = "python3|train.py", "git|status",
		"python3|-c|from multiprocessing.forkserver import main; main(5)"
	for name, c := range map[string]struct {
		parent, parentArguments string
		forked                  bool
		arguments               string
		want                    string
	}{
		"fork of a trainer":           {"trainer", "", true, python, "worker"},
		"fork of a rank":              {"rank", "", true, python, "worker"},
		"fork of a loader":            {"loader", "", true, python, "worker"},
		"fork of a compile worker":    {"compiler", "", true, python, "compiler"},
		"subshell":                    {"launcher", "", true, "sh", "launcher"},
		"fork of the fork server":     {"other", forkserver, true, forkserver, "worker"},
		"fork of a helper":            {"other", tool, true, tool, "other"},
		"program of a launcher":       {"launcher", "", false, tool, "trainer"},
		"tool of a trainer":           {"trainer", "", false, tool, "other"},
		"Python program of a trainer": {"trainer", "", false, python, "trainer"},
		"Python program of a rank":    {"rank", "", false, python, "other"},
		"Python program of a loader":  {"loader", "", false, python, "other"},
		"shell of a rank":             {"rank", "", false, "sh|-c|x", "launcher"},
	} {
		p := Program{
			Arguments: strings.Split(c.arguments, "|"), Forked: c.forked,
			ParentRole: roles[c.parent], ParentArguments: strings.Split(c.parentArguments, "|"),
		}
		if got, rank := p.Role(); got != roles[c.want] || rank != growth.Unknown {
			t.Errorf("%s is a %s (%d), want %s", name, got, rank, c.want)
		}
	}

	named := Program{Name: "pt_data_worker", ParentRole: growth.RoleTrainer}
	if got, _ := named.Role(); got != growth.RoleLoaderWorker {
		t.Errorf("a named DataLoader worker is a %s", got)
	}
	named.Forked = true
	if got, _ := named.Role(); got != growth.RoleLoaderWorker {
		t.Errorf("a forked one that has its name is a %s", got)
	}
}

func TestRank(t *testing.T) {
	const no = growth.Unknown
	const openMPI = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=6"
	for name, c := range map[string]struct {
		parent, arguments, environment string
		want                           int
	}{
		"RANK":                    {"", "python3 train.py", "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1", 3},
		"rank 0":                  {"", "python3 train.py", "RANK=0 WORLD_SIZE=2", 0},
		"one of one":              {"", "python3 train.py", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", no},
		"LOCAL_RANK alone":        {"", "python3 train.py", "LOCAL_RANK=2", 2},
		"Open MPI":                {"", "python3 train.py", openMPI, 5},
		"Slurm":                   {"", "python3 train.py", "SLURM_PROCID=4 SLURM_NTASKS=8", 4},
		"Slurm job of one task":   {"", "python3 train.py", "SLURM_PROCID=0 SLURM_NTASKS=1", no},
		"--local_rank=":           {"", "python3 train.py --local_rank=7", "", 7},
		"--local-rank":            {"", "python3 train.py --local-rank 6", "", 6},
		"--local-rank at the end": {"", "python3 train.py --local-rank", "", no},
		"malformed":               {"", "python3 train.py", "RANK=-1 LOCAL_RANK=99999999999", no},
		"child of a launcher":     {"launcher", "python3 train.py", "RANK=1", 1},
		"child of a trainer":      {"trainer", "python3 train.py", "RANK=1", 1},
		"child of a rank":         {"rank", "python3 train.py", "RANK=1", no},
		"launcher":                {"", "sh -c x", "RANK=1", no},
	} {
		p := Program{
			Arguments: strings.Fields(c.arguments), ParentRole: roles[c.parent],
			Environment: make(map[string]string),
		}
		for _, variable := range strings.Fields(c.environment) {
			name, value, _ := strings.Cut(variable, "=")
			p.Environment[name] = value
		}
		role, rank := p.Role()
		if rank != c.want || (role == growth.RoleRank) != (c.want != no) {
			t.Errorf("%s: a %s, rank %d, want %d", name, role, rank, c.want)
		}

		p.Forked = true
		if _, rank := p.Role(); rank != no {
			t.Errorf("%s: its fork is rank %d", name, rank)
		}
	}
}

func FuzzRole(f *testing.F) {
	f.Add("python3\x00-m\x00x", "RANK", "3", true)
	f.Add("python3\x00-X", "", "", false)
	f.Add("--local-rank", "", "", false)
	f.Fuzz(func(t *testing.T, arguments, variable, value string, forked bool) {
		p := Program{
			Arguments:   strings.Split(arguments, "\x00"),
			Environment: map[string]string{variable: value},
			Forked:      forked, ParentRole: growth.RoleTrainer,
		}
		role, rank := p.Role()
		if role == "" || (role == growth.RoleRank) != (rank >= 0) {
			t.Errorf("%q, rank %d", role, rank)
		}
	})
}

// A service has the name by which people know it, whatever title its processes have.
func TestService(t *testing.T) {
	for name, c := range map[string]struct {
		arguments string
		parent    string // service of the parent of a copy, or of a process of multiprocessing
		want      string
	}{
		"script":                   {"/usr/bin/python3|-u|/usr/bin/gunicorn|-w|3", "", "gunicorn"},
		"script with an extension": {"python3|train.py", "", "train.py"},
		"module":                   {"python3|-m|celery.bin|worker", "", "celery.bin"},
		"program":                  {"/usr/sbin/apache2|-k|start", "", "apache2"},
		"title of a master":        {"gunicorn: master [app:app]", "", "gunicorn"},
		"title in brackets":        {"[celeryd: celery@host:MainProcess]|-A|x", "", "celeryd"},
		"title of a worker":        {"postgres: user db [local] idle", "postgres", "postgres"},
		"copy with a title":        {"handler-7", "server.py", "server.py"},
		"spawned": {
			"python3|-c|from multiprocessing.spawn import spawn_main|--multiprocessing-fork", "pool.py",
			"pool.py",
		},
		"fork server": {
			"python3|-c|from multiprocessing.forkserver import main; main(5)", "pool.py", "pool.py",
		},
		"hostile": {"/x/a\x1b[31m", "", "a?[31m"},
	} {
		p := Program{
			Arguments: strings.Split(c.arguments, "|"), ParentService: c.parent,
			Forked: c.parent != "" && !strings.HasPrefix(c.arguments, "python3"),
		}
		if got := p.service(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
