package tree

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// identityOf returns the identity of a process without the machine's part.
func identityOf(t *testing.T, pid int) growth.Identity {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	defer p.Close()
	id := IdentityOf(p)
	if host, _ := os.Hostname(); id.Node != host {
		t.Errorf("node %q, want %q", id.Node, host)
	}
	id.Node, id.Pod, id.Container = "", "", ""
	return id
}

func TestIdentityOf(t *testing.T) {
	const (
		mpi   = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=6 OMPI_COMM_WORLD_LOCAL_RANK=2"
		slurm = "SLURM_JOB_ID=42 SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=4"
		torch = "TORCHELASTIC_RUN_ID=7f RANK=9 LOCAL_RANK=1 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8"
		none  = "TORCHELASTIC_RUN_ID=none RANK=11 LOCAL_RANK=3 WORLD_SIZE=16"
		jobs  = "SLURM_JOB_ID=42 KUBEFLOW_TRAINING_JOB_ID=kf"
	)
	for name, c := range map[string]struct{ environment, want string }{
		"no job":                  {"", `job "" run "" slurm "": trainer -1 (-1) of -1`},
		"torchrun":                {torch, `job "7f" run "7f" slurm "": rank 9 (1) of 16`},
		"torchrun without an ID":  {none, `job "" run "none" slurm "": rank 11 (3) of 16`},
		"srun":                    {slurm, `job "42" run "" slurm "42": rank 3 (1) of 4`},
		"torchrun under srun":     {slurm + " " + none, `job "42" run "none" slurm "42": rank 11 (3) of 16`},
		"Kubeflow before Slurm":   {jobs, `job "kf" run "" slurm "42": trainer -1 (-1) of -1`},
		"torchrun before both":    {jobs + " " + torch, `job "7f" run "7f" slurm "42": rank 9 (1) of 16`},
		"Ray before all":          {"RAY_JOB_ID=02 " + jobs, `job "02" run "" slurm "42": trainer -1 (-1) of -1`},
		"Open MPI":                {mpi, `job "" run "" slurm "": rank 5 (2) of 6`},
		"MPICH":                   {"PMI_RANK=5 PMI_SIZE=6 MPI_LOCALRANKID=2", `job "" run "" slurm "": rank 5 (2) of 6`},
		"number on the node only": {"LOCAL_RANK=2 LOCAL_WORLD_SIZE=4", `job "" run "" slurm "": rank 2 (2) of -1`},
		"one of one":              {"RANK=0 WORLD_SIZE=1", `job "" run "" slurm "": trainer -1 (-1) of -1`},
		"malformed numbers":       {"RANK=1 LOCAL_RANK=x WORLD_SIZE=-2", `job "" run "" slurm "": rank 1 (-1) of -1`},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program(t))
			command.Env = strings.Fields(c.environment)
			id := identityOf(t, start(t, command).PID())
			got := fmt.Sprintf("job %q run %q slurm %q: %s %d (%d) of %d",
				id.Job, id.RunID, id.SlurmJob, id.Role, id.Rank, id.LocalRank, id.WorldSize)
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestIdentityOfTree compares the known identity of a process alone with the identity in its tree.
func TestIdentityOfTree(t *testing.T) {
	command := exec.Command(program(t))
	command.Env = []string{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", "SLURM_JOB_ID=42"}
	job := start(t, command)
	members := job.scan(0).New
	fork := job.order("fork", 1)[0]
	for _, member := range append(members, job.scan(0).New...) {
		p := tracertest.Must(process.Open(member.Process.PID))(t)
		defer p.Close()
		if alone := IdentityOf(p); alone != member.Info.Identity {
			t.Errorf("alone %+v, in its tree %+v", alone, member.Info.Identity)
		}
	}

	want := growth.UnknownIdentity()
	want.Job, want.SlurmJob, want.Role = "42", "42", growth.RoleWorker
	if got := identityOf(t, fork); got != want {
		t.Errorf("fork of a rank: %+v, want %+v", got, want)
	}
}

func TestIdentityOfHostileProcess(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for name, environment := range map[string][]string{
		"long": {"SLURM_JOB_ID=" + long, "RAY_JOB_ID=" + long, "TORCHELASTIC_RUN_ID=" + long},
		"control characters": {
			"SLURM_JOB_ID=\x1b[2J\n\x07", "RAY_JOB_ID=\u202e", "TORCHELASTIC_RUN_ID=\xff\xfe", "RANK=1\n",
		},
		"numbers":  {"RANK=99999999999999999999", "LOCAL_RANK=0x1", "WORLD_SIZE=1e9"},
		"no value": {"RANK", "=RANK", "=", "SLURM_JOB_ID="},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program(t))
			command.Env = environment
			id := identityOf(t, start(t, command).PID())
			for _, text := range []string{id.Job, id.RunID, id.SlurmJob} {
				if len(text) > growth.MaxIdentityBytes+len("…") || !utf8.ValidString(text) ||
					text != growth.Printable(text) {
					t.Errorf("%q", text)
				}
			}
			if id.Rank != growth.Unknown || id.Role == growth.RoleRank {
				t.Errorf("it is rank %d", id.Rank)
			}
		})
	}

	t.Run("many variables", func(t *testing.T) {
		command := exec.Command(program(t))
		command.Env = []string{"SLURM_JOB_ID=42", "RANK=3"}
		for i := range 100_000 { // of 9 bytes, near the limit of the kernel
			command.Env = append(command.Env, fmt.Sprintf("V%06d=", i))
		}
		if id := identityOf(t, start(t, command).PID()); id.Job != "42" || id.Rank != 3 {
			t.Errorf("%+v", id)
		}
	})
}

// A program that is no Python trains in a job alone.
func TestIdentityAmongAll(t *testing.T) {
	for variable, want := range map[string]growth.Role{
		"SLURM_JOB_ID=42": growth.RoleTrainer, "RANK=3": growth.RoleRank, "OTHER=1": growth.RoleOther,
	} {
		command := exec.Command(tracertest.Build(t, "steps.c"))
		command.Env = []string{variable}
		target := tracertest.StartCommand(t, command)
		target.Await("ready")
		p := tracertest.Must(process.Open(target.PID()))(t)
		defer p.Close()
		if got := IdentityAmongAll(p).Role; got != want {
			t.Errorf("%s: %s, want %s", variable, got, want)
		}
	}
}
