package fleet

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A slurm is a cluster of this machine alone, with a configuration, keys and ports of its own.
type slurm struct {
	folder string // all may read it
	config string
}

const slurmConfig = `
ClusterName=fleet
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.socket
CredType=cred/munge
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MailProg=/bin/true
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmdParameters=config_overrides
Prolog=%[2]s/prolog
Epilog=%[2]s/epilog
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000
PartitionName=main Nodes=%[1]s Default=YES State=UP
`

// startSlurm starts munged, slurmctld and slurmd. The node runs the scripts of deploy/slurm; the
// variables are for its slurmd and all that it starts but the jobs.
func startSlurm(t *testing.T, path string) *slurm {
	t.Helper()
	folder := tracertest.Must(os.MkdirTemp("", "allocscope-slurm-"))(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	s := &slurm{folder: folder, config: filepath.Join(folder, "slurm.conf")}
	for _, name := range []string{".", "state", "spool"} {
		mkdir(t, filepath.Join(folder, name), 0o755)
	}

	key := make([]byte, 1024)
	rand.Read(key) //nolint:errcheck // never fails
	keyFile := filepath.Join(folder, "munge.key")
	writeAs(t, keyFile, string(key), 0o400)
	for _, name := range []string{"prolog", "epilog"} {
		// slurmd gives them no PATH.
		script := fmt.Sprintf("#!/bin/sh\nPATH=%s exec %s\n", path,
			filepath.Join(root(t), "deploy/slurm", name))
		writeAs(t, filepath.Join(folder, name), script, 0o755)
	}
	host := tracertest.Must(os.Hostname())(t)
	host, _, _ = strings.Cut(host, ".")
	ports := freePorts(t, 2)
	text := fmt.Sprintf(slurmConfig, host, folder, ports[0], ports[1])
	writeAs(t, s.config, text, 0o644)

	start(t, exec.Command("munged", "--foreground", "--force", "--num-threads=2",
		"--key-file="+keyFile, "--socket="+folder+"/munge.socket", "--pid-file="+folder+"/munge.pid",
		"--log-file="+folder+"/munge.log", "--seed-file="+folder+"/munge.seed"))
	await(t, "munged listens", func() string {
		if _, err := os.Stat(folder + "/munge.socket"); err != nil {
			return err.Error()
		}
		return ""
	})
	start(t, exec.Command("slurmctld", "-D", "-f", s.config))
	await(t, "slurmctld answers", func() string {
		out, err := s.command("scontrol", "ping").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "UP") {
			return string(out)
		}
		return ""
	})
	start(t, exec.Command("slurmd", "-D", "-f", s.config, "-N", host))
	await(t, "the node is idle", func() string { return s.unless("idle") })
	return s
}

// command is one of Slurm's commands, of this cluster.
func (s *slurm) command(name string, arguments ...string) *exec.Cmd {
	command := exec.Command(name, arguments...)
	command.Env = append(os.Environ(), "SLURM_CONF="+s.config)
	return command
}

// unless returns the state of the node if it is another one.
func (s *slurm) unless(state string) string {
	out, err := s.command("sinfo", "--noheader", "--format=%t %E").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), state) {
		return string(out)
	}
	return ""
}

// submit submits a job and returns its ID. It is cancelled when the test ends.
func (s *slurm) submit(t *testing.T, arguments ...string) string {
	t.Helper()
	log := tracertest.Must(os.CreateTemp(s.folder, "job-*.log"))(t)
	defer log.Close()
	if err := log.Chmod(0o666); err != nil { // the job's user writes it
		t.Fatal(err)
	}
	out := run(t, s.command("sbatch", append([]string{
		"--parsable", "--output=" + log.Name(), "--chdir=/",
	}, arguments...)...))
	job := strings.TrimSpace(out)
	t.Cleanup(func() {
		s.cancel(t, job)
		if t.Failed() {
			t.Logf("job %s:\n%s", job, read(t, log.Name()))
		}
	})
	return job
}

// cancel ends a job and waits until it is gone: without slurmd its tasks would stay.
func (s *slurm) cancel(t *testing.T, job string) {
	t.Helper()
	s.command("scancel", job).Run() //nolint:errcheck // it may have ended
	for range 300 {
		out, err := s.command("squeue", "--noheader", "--jobs="+job).Output()
		if err != nil || len(out) == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Errorf("job %s does not end", job)
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	tracertest.NoError(t, os.MkdirAll(path, mode))
	tracertest.NoError(t, os.Chmod(path, mode))
}
