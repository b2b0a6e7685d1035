package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// podman runs a command of the container engine. runc cannot raise the two limits here.
func podman(arguments ...string) *exec.Cmd {
	if arguments[0] == "run" {
		arguments = append([]string{
			"run", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--network=none",
		}, arguments[1:]...)
	}
	return exec.Command("podman", append([]string{"--runtime=runc"}, arguments...)...)
}

// emptyDir is a folder as the kubelet makes it for an emptyDir.
func emptyDir(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	tracertest.NoError(t, os.Chmod(path, 0o777|os.ModeSticky))
	return path
}

// remove removes a container when the test ends. The test prints the container's output if it
// fails.
func remove(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := podman("logs", "--tail=50", name).CombinedOutput()
			t.Logf("container %s:\n%s", name, said)
		}
		podman("rm", "--force", "--time=60", name).Run() //nolint:errcheck // it may not exist
	})
}

// A pod has the kubelet's data on the pod of the manifest.
type pod struct {
	spec core.PodSpec
	maps map[string]core.ConfigMap
	// fields of the pod itself, by their paths.
	fields map[string]string
	// paths of the node that the test has elsewhere.
	paths map[string]string
}

// volume returns the path on this machine of a volume.
func (p pod) volume(t *testing.T, name string) string {
	t.Helper()
	for _, v := range p.spec.Volumes {
		switch {
		case v.Name != name:
		case v.HostPath != nil && p.paths[v.HostPath.Path] != "":
			return p.paths[v.HostPath.Path]
		case v.HostPath != nil:
			return v.HostPath.Path
		case v.EmptyDir != nil:
			return p.paths[name]
		case v.ConfigMap != nil:
			folder := t.TempDir()
			for _, c := range p.maps {
				for file, text := range c.Data {
					if c.Name == v.ConfigMap.Name {
						write(t, filepath.Join(folder, file), text)
					}
				}
			}
			return folder
		}
	}

	t.Fatalf("no volume %s that the test knows", name)
	return ""
}

// arguments are podman's arguments for a container of the pod, from its manifest: its rights, its
// mounts and its command.
func (p pod) arguments(t *testing.T, c core.Container) []string {
	t.Helper()
	s := c.SecurityContext
	var all []string
	add := func(format string, values ...any) { all = append(all, fmt.Sprintf(format, values...)) }

	add("--user=%d:%d", *p.spec.SecurityContext.RunAsUser, *p.spec.SecurityContext.RunAsGroup)
	if p.spec.HostPID {
		add("--pid=host")
	}
	if s.Privileged != nil && *s.Privileged {
		add("--privileged")
	}
	if s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
		add("--read-only")
		add("--read-only-tmpfs=false")
	}
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		add("--security-opt=no-new-privileges")
	}
	if s.Capabilities != nil {
		for _, c := range s.Capabilities.Drop {
			add("--cap-drop=%s", c)
		}
		for _, c := range s.Capabilities.Add {
			add("--cap-add=%s", c)
		}
	}
	if s.SeccompProfile != nil && s.SeccompProfile.Type == core.SeccompProfileTypeLocalhost {
		add("--security-opt=seccomp=%s",
			filepath.Join(p.paths["/var/lib/kubelet/seccomp"], *s.SeccompProfile.LocalhostProfile))
	}
	if limit, ok := c.Resources.Limits[core.ResourceMemory]; ok {
		add("--memory=%d", limit.Value())
	}
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		add("--volume=%s:%s:%s", p.volume(t, m.Name), m.MountPath, mode)
	}

	var variables []string
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			path := e.ValueFrom.FieldRef.FieldPath
			if value = p.fields[path]; value == "" {
				t.Fatalf("the test has no field %s", path)
			}
		}
		add("--env=%s=%s", e.Name, value)
		variables = append(variables, "$("+e.Name+")", value)
	}

	if c.WorkingDir != "" {
		add("--workdir=%s", c.WorkingDir)
	}
	if len(c.Command) > 0 {
		add("--entrypoint=%s", c.Command[0])
	}
	add("%s", c.Image)
	for _, argument := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
		add("%s", strings.NewReplacer(variables...).Replace(argument))
	}
	return all
}

func write(t *testing.T, path, text string) { writeAs(t, path, text, 0o600) }

func writeAs(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	tracertest.NoError(t, os.WriteFile(path, []byte(text), mode))
}

// inside runs a command in the network of a container, as the kubelet's probes come into it.
func inside(t *testing.T, container string, arguments ...string) *exec.Cmd {
	t.Helper()
	pid := strings.TrimSpace(run(t, podman("inspect", "--format={{.State.Pid}}", container)))
	return exec.Command("nsenter", append([]string{"--net", "--target=" + pid}, arguments...)...)
}

func itoa(n int) string { return strconv.Itoa(n) }

// TestContainer runs the agent in the container of the manifest: with its capabilities, seccomp
// profile, mounts, memory limit and read-only image. It traces ranks in another container.
func TestContainer(t *testing.T) {
	t.Run("with the five capabilities", func(t *testing.T) { testContainer(t, kubernetesFolder) })
	t.Run("privileged", func(t *testing.T) { testContainer(t, kubernetesFolder+"-privileged") })
}

// TestContainerWithoutHostPID starts the agent as a manifest that lacks hostPID would.
func TestContainerWithoutHostPID(t *testing.T) {
	p := podOf(t, build(t, kubernetesFolder), filepath.Join(root(t), "deploy/kubernetes/agent"))
	p.spec.HostPID = false
	name := "alone-" + itoa(os.Getpid())
	remove(t, name)
	run(t, podman(append([]string{"run", "--detach", "--name=" + name},
		p.arguments(t, p.spec.Containers[0])...)...))
	await(t, "the log says so", func() string {
		said, err := podman("logs", name).CombinedOutput()
		if err != nil || !strings.Contains(string(said), "hostPID: true") {
			return string(said)
		}
		return ""
	})
}

// podOf has the pod of a manifest, with folders of the test in place of the folders of a node.
func podOf(t *testing.T, m manifests, seccomp string) pod {
	t.Helper()
	return pod{
		spec: m.pod(), maps: m.maps, fields: map[string]string{"spec.nodeName": "node-7"},
		paths: map[string]string{
			"/var/lib/kubelet/seccomp": seccomp, "/var/lib/allocscope": t.TempDir(),
			"run": emptyDir(t),
		},
	}
}

func testContainer(t *testing.T, folder string) {
	p := podOf(t, build(t, folder), t.TempDir())
	job := strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
	trainer, agent := "trainer-"+itoa(os.Getpid()), "agent-"+itoa(os.Getpid())

	const limit = 3 << 30
	remove(t, trainer)
	run(t, podman("run", "--detach", "--name="+trainer, "--memory="+itoa(limit),
		"--volume="+root(t)+"/test/fleet:/app:ro", "--env=RANK=3", "--env=WORLD_SIZE=8",
		"--env=TORCHELASTIC_RUN_ID="+job, "docker.io/library/debian:12-slim",
		"python3", "/app/leaky.py", "3", "4000000", "300000000"))

	for _, c := range p.spec.InitContainers {
		run(t, podman(append([]string{"run", "--rm"}, p.arguments(t, c)...)...))
	}
	c := p.spec.Containers[0]
	doctor := c
	doctor.Args = []string{"doctor"}
	said := run(t, podman(append([]string{"run", "--rm"}, p.arguments(t, doctor)...)...))
	for line := range strings.Lines(said) {
		// The limit of open files comes from this machine's podman.
		status, what, _ := strings.Cut(line, "  ")
		if status == "fail" || status == "warn" && !strings.HasPrefix(what, "open files") {
			t.Errorf("doctor: %s", line)
		}
	}
	remove(t, agent)
	c.Args = append(c.Args, "--duration=20s")
	run(t, podman(append([]string{"run", "--detach", "--name=" + agent}, p.arguments(t, c)...)...))

	page := func(port, path, header string) (string, error) {
		out, err := inside(t, agent, "wget", "--quiet", "--content-on-error",
			"--output-document=-", "--header=Host: "+header, "http://127.0.0.1:"+port+path,
		).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return string(out), err
	}
	metrics := func() (string, error) { return page("9753", "/metrics", "10.1.2.3:9753") }

	awaitRanks(t, metrics, job, "3")
	if probe := c.LivenessProbe.HTTPGet.Path; probe != "" {
		if out, err := page("9754", probe, "10.1.2.3:9754"); err != nil {
			t.Errorf("the probe %s: %v %s", probe, err, out)
		}
	}
	if out, err := page("9753", "/metrics", "attacker.example"); err == nil {
		t.Errorf("a foreign Host is answered: %.200s", out)
	}

	text := tracertest.Must(metrics())(t)
	for _, m := range points(t, text, "allocscope_process_resident_bytes") {
		if m.labels["job_id"] == job && m.labels["node"] != "node-7" {
			t.Errorf("labels %v", m.labels)
		}
	}
	await(t, "the limit of the container is known", func() string {
		text, err := metrics()
		if err != nil {
			return err.Error()
		}
		limits := points(t, text, "allocscope_process_limit_bytes")
		if !slices.ContainsFunc(limits, func(p point) bool {
			return p.labels["job_id"] == job && p.value == limit
		}) {
			return fmt.Sprint(limits)
		}
		return ""
	})

	summaryOf := request(t, filepath.Join(p.paths["run"], "allocscope-agent/agent.sock"), job, 3)
	onHost := strings.Replace(summaryOf, "/var/lib/allocscope", p.paths["/var/lib/allocscope"], 1)
	r, traced := awaitTrace(t, onHost)
	if line := lineOf(t, "leaky.py", "# the leak"); !strings.Contains(traced, line) {
		t.Errorf("summary.json has no %s", line)
	}
	for _, s := range r.Sources {
		if s.State == "failed" {
			t.Errorf("source %s failed: %s %s", s.Name, s.Reason, s.Detail)
		}
	}
	t.Logf("memory of the container at most: %s", highWater(t, agent))
}

// highWater is the most memory that a container has had, by its cgroup.
func highWater(t *testing.T, container string) string {
	t.Helper()
	pid := strings.TrimSpace(run(t, podman("inspect", "--format={{.State.Pid}}", container)))
	for line := range strings.Lines(read(t, "/proc/"+pid+"/cgroup")) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		file := "/sys/fs/cgroup" + path + "/memory.peak"
		if controllers == "memory" {
			file = "/sys/fs/cgroup/memory" + path + "/memory.max_usage_in_bytes"
		} else if controllers != "" {
			continue
		}
		if raw, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(raw)) + " bytes"
		}
	}

	return "unknown"
}
