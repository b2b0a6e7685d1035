package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
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

// remove removes a container when the test ends. The test prints what it said if it fails.
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

// A pod is what the kubelet would know about the pod of the manifest.
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

// arguments are those of podman for a container of the pod, from its manifest: what it may, what it
// sees and what it runs.
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
	if len(c.Command) > 0 {
		add("--entrypoint=%s", c.Command[0])
	}
	add("%s", c.Image)
	for _, argument := range append(c.Command[min(1, len(c.Command)):], c.Args...) {
		add("%s", strings.NewReplacer(variables...).Replace(argument))
	}
	return all
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inside runs a command in the network of a container, as the kubelet's probes come into it.
func inside(t *testing.T, container string, arguments ...string) *exec.Cmd {
	t.Helper()
	pid := strings.TrimSpace(run(t, podman("inspect", "--format={{.State.Pid}}", container)))
	return exec.Command("nsenter", append([]string{"--net", "--target=" + pid}, arguments...)...)
}

func itoa(n int) string { return strconv.Itoa(n) }
