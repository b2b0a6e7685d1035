package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A unit is deploy/systemd/allocscope-agent.service.
type unit struct{ text string }

func readUnit(t *testing.T) unit {
	t.Helper()
	return unit{read(t, "../../deploy/systemd/allocscope-agent.service")}
}

// value is the value of a setting.
func (u unit) value(t *testing.T, setting string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + setting + `=(.*)$`).FindStringSubmatch(u.text)
	if m == nil {
		t.Fatalf("the unit has no %s", setting)
	}
	return m[1]
}

func TestUnit(t *testing.T) {
	u := readUnit(t)

	t.Run("has the documented capabilities", func(t *testing.T) {
		want := strings.Join(documentedCapabilities(t), " ")
		for _, setting := range []string{"AmbientCapabilities", "CapabilityBoundingSet"} {
			if got := u.value(t, setting); got != want {
				t.Errorf("%s=%s, the page has %s", setting, got, want)
			}
		}
	})

	t.Run("systemd makes the folder of the socket", func(t *testing.T) {
		socket := "/run/" + u.value(t, "RuntimeDirectory") + "/agent.sock "
		if command := u.value(t, "ExecStart"); !strings.Contains(command, "--socket "+socket) {
			t.Errorf("%s has no %s", command, socket)
		}
	})

	t.Run("has as long to end as the pod", func(t *testing.T) {
		pod := build(t, kubernetesFolder).pod()
		if got := u.value(t, "TimeoutStopSec"); got != fmt.Sprint(*pod.TerminationGracePeriodSeconds) {
			t.Errorf("TimeoutStopSec=%s, the pod has %d", got, *pod.TerminationGracePeriodSeconds)
		}
	})

	t.Run("systemd takes it", func(t *testing.T) {
		// It must find the program that the unit starts.
		text := strings.Replace(u.text, "ExecStart=allocscope", "ExecStart="+allocscope(t), 1)
		path := filepath.Join(t.TempDir(), "allocscope-agent.service")
		write(t, path, text)
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
		// 2.8 of 10: it has the rights that it needs. --threshold is ten times the score.
		run(t, exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=30", path))
	})
}

// asUnit writes a systemctl into a folder that starts the command line of the unit with its
// capabilities, as the user daemon: the user of the unit is of machines that have installed it.
func asUnit(t *testing.T, folder string, options ...string) {
	t.Helper()
	u := readUnit(t)
	var capabilities []string
	for name := range strings.FieldsSeq(u.value(t, "AmbientCapabilities")) {
		capabilities = append(capabilities, "+"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
	}
	list := "-all," + strings.Join(capabilities, ",")
	program := filepath.Join(folder, "allocscope") // where the user may read it
	run(t, exec.Command("install", allocscope(t), program))
	command := strings.ReplaceAll(u.value(t, "ExecStart"), "/run/allocscope-agent",
		filepath.Join(folder, "run"))
	command = program + strings.TrimPrefix(command, "allocscope")
	write(t, filepath.Join(folder, "unit"), fmt.Sprintf(
		"umask %s\nOPTIONS='%s'\nexec setpriv --reuid=daemon --regid=daemon --clear-groups "+
			"--no-new-privs --inh-caps=%s --ambient-caps=%s --bounding-set=%s %s\n",
		u.value(t, "UMask"), strings.Join(options, " "), list, list, list, command))
	script := read(t, "systemctl")
	writeAs(t, filepath.Join(folder, "systemctl"), script, 0o755)
	t.Cleanup(func() {
		stop := exec.Command(filepath.Join(folder, "systemctl"), "stop")
		stop.Run() //nolint:errcheck // it may be gone
		if t.Failed() {
			t.Logf("agent:\n%s", read(t, filepath.Join(folder, "log")))
		}
	})
}

// TestSlurm runs jobs of an ordinary user in a cluster whose Prolog starts the agent, and whose
// Epilog stops it.
func TestSlurm(t *testing.T) {
	server := startPyroscope(t, storageV1)
	folder := tracertest.Must(os.MkdirTemp("", "allocscope-unit-"))(t)
	t.Cleanup(func() {
		os.RemoveAll(folder)
		os.Remove("/run/allocscope-jobs")
	})
	mkdir(t, folder, 0o755)
	for _, name := range []string{"state", "run"} {
		mkdir(t, filepath.Join(folder, name), 0o700)
		run(t, exec.Command("chown", "daemon:", filepath.Join(folder, name)))
	}
	socket := filepath.Join(folder, "run/agent.sock")
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	asUnit(t, folder, "--listen", address, "--directory", filepath.Join(folder, "state"),
		"--env=SLURM_JOB_ID=*", "--duration=15s", "--min-rss=32MiB", "--push", server.url,
		"--label=team=vision", "--push-spool", filepath.Join(folder, "state/spool"))
	page := func() (string, error) { return get("http://" + address + "/metrics") }

	s := startSlurm(t, folder)
	script := filepath.Join(folder, "leaky.py")
	run(t, exec.Command("install", "-m", "0755", "leaky.py", script))
	if _, err := page(); err == nil {
		t.Fatal("an agent runs before the first job")
	}
	submit := func() string {
		return s.submit(t, "--uid=nobody", "--ntasks=4", "--wrap",
			"srun /usr/bin/python3 "+script+" 2 4000000 64000000")
	}
	job := submit()

	t.Run("the agent of the node names the ranks", func(t *testing.T) {
		awaitRanks(t, page, job, "0", "1", "2", "3")
		text := tracertest.Must(page())(t)
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "allocscope_process_resident_bytes{") {
				t.Log(strings.TrimSpace(line))
			}
		}
	})

	t.Run("the profiles of a rank have the labels of Slurm", func(t *testing.T) {
		_, text := awaitTrace(t, request(t, socket, job, 2))
		if line := lineOf(t, "leaky.py", "# the leak"); !strings.Contains(text, line) {
			t.Errorf("summary.json has no %s", line)
		}

		host := tracertest.Must(os.Hostname())(t)
		want := map[string]string{
			"job_id": job, "slurm_job_id": job, "rank": "2", "local_rank": "2", "world_size": "4",
			"node": host, "team": "vision", "service_name": "allocscope",
		}
		defer func() { t.Log(server.series(t, `{phase="growth"}`)) }()
		await(t, "the profiles arrive", func() string {
			for _, phase := range phases {
				got := server.series(t, fmt.Sprintf(`{phase=%q}`, phase))
				if !slices.ContainsFunc(got, func(labels map[string]string) bool {
					for name, value := range want {
						if labels[name] != value {
							return false
						}
					}
					return true
				}) {
					return fmt.Sprintf("%s: %v, want %v", phase, got, want)
				}
			}
			return ""
		})
	})

	t.Run("the agent stays until the last job ends", func(t *testing.T) {
		second := submit()
		awaitRanks(t, page, second, "0", "1", "2", "3")
		s.cancel(t, job)
		awaitRanks(t, page, job)
		awaitRanks(t, page, second, "0", "1", "2", "3")
		s.cancel(t, second)
		await(t, "the agent has ended", func() string {
			if _, err := page(); err == nil {
				return "it answers"
			}
			return ""
		})
		await(t, "the node is idle", func() string { return s.unless("idle") })
	})
}
