package fleet

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// manifests are the objects that `kubectl apply -k` sends.
type manifests struct {
	namespace core.Namespace
	account   core.ServiceAccount
	maps      map[string]core.ConfigMap // by the start of their name
	daemonSet apps.DaemonSet
	policy    networking.NetworkPolicy
}

// build makes the objects of a folder as kubectl does, and decodes them with the types of the API.
// A field that these do not have is an error.
func build(t *testing.T, folder string) manifests {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	built := tracertest.Must(krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder))(t)

	m := manifests{maps: make(map[string]core.ConfigMap)}
	for _, object := range built.Resources() {
		text := tracertest.Must(object.AsYAML())(t)
		switch kind := object.GetKind(); kind {
		case "Namespace":
			decode(t, text, &m.namespace)
		case "ServiceAccount":
			decode(t, text, &m.account)
		case "DaemonSet":
			decode(t, text, &m.daemonSet)
		case "NetworkPolicy":
			decode(t, text, &m.policy)
		case "ConfigMap":
			var c core.ConfigMap
			decode(t, text, &c)
			name := c.Name[:strings.LastIndexByte(c.Name, '-')] // without the hash of its content
			m.maps[name] = c
		default:
			t.Errorf("an object of kind %s", kind)
		}
	}

	return m
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

func (m manifests) pod() core.PodSpec { return m.daemonSet.Spec.Template.Spec }

const kubernetesFolder = "../../deploy/kubernetes/agent"

func TestManifests(t *testing.T) {
	m := build(t, kubernetesFolder)
	pod := m.pod()
	agent := pod.Containers[0]
	security := agent.SecurityContext

	t.Run("the pod sees the host's processes and has no token", func(t *testing.T) {
		if !pod.HostPID || pod.HostNetwork || pod.HostIPC {
			t.Errorf("hostPID %v, hostNetwork %v, hostIPC %v",
				pod.HostPID, pod.HostNetwork, pod.HostIPC)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken ||
			pod.ServiceAccountName != m.account.Name {
			t.Errorf("service account %q, token %v", pod.ServiceAccountName,
				pod.AutomountServiceAccountToken)
		}
		if m.namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
			t.Errorf("labels of the namespace: %v", m.namespace.Labels)
		}
	})

	t.Run("the capabilities are those of privileges.md, each with its reason", func(t *testing.T) {
		var got []string
		for _, c := range security.Capabilities.Add {
			got = append(got, "CAP_"+string(c))
		}
		if want := documentedCapabilities(t); !slices.Equal(got, want) {
			t.Errorf("%v, the page has %v", got, want)
		}
		if !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("drops %v", security.Capabilities.Drop)
		}
		text := read(t, filepath.Join(kubernetesFolder, "daemonset.yaml"))
		for _, name := range got {
			line := "- " + strings.TrimPrefix(name, "CAP_")
			if !regexp.MustCompile(`(?m)^ +# .+\n +` + line + `$`).MatchString(text) {
				t.Errorf("no comment above %s", line)
			}
		}
	})

	t.Run("the container cannot write its image, nor gain privileges", func(t *testing.T) {
		if security.Privileged != nil || security.AllowPrivilegeEscalation == nil ||
			*security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem {
			t.Errorf("%+v", security)
		}
	})

	t.Run("no pod can take health away, and Prometheus alone may ask for metrics", func(t *testing.T) {
		for name, probe := range map[string]*core.Probe{
			"startup": agent.StartupProbe, "liveness": agent.LivenessProbe, "readiness": agent.ReadinessProbe,
		} {
			if port := probe.HTTPGet.Port.String(); port != "health" {
				t.Errorf("the %s probe asks port %s", name, port)
			}
		}

		spec := m.policy.Spec
		if !maps.Equal(spec.PodSelector.MatchLabels, m.daemonSet.Spec.Template.Labels) ||
			len(spec.Ingress) != 1 || len(spec.Ingress[0].From) != 1 || len(spec.Ingress[0].Ports) != 1 ||
			spec.Ingress[0].Ports[0].Port.String() != "metrics" {
			t.Errorf("the policy is %+v", spec)
		}
	})

	t.Run("each container has a limit of CPU time and memory", func(t *testing.T) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Resources.Limits.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %v", c.Name, c.Resources.Limits)
			}
		}
	})

	t.Run("volumes that are mounted exist, and are mounted where they exist", func(t *testing.T) {
		checkVolumes(t, pod, m.maps)
	})

	t.Run("the seccomp profile is where the kubelet looks for it", func(t *testing.T) {
		name := *security.SeccompProfile.LocalhostProfile
		got := m.maps["allocscope-seccomp"].Data[name]
		if got != read(t, filepath.Join(kubernetesFolder, name)) {
			t.Errorf("the ConfigMap has no %s", name)
		}
		copied := pod.InitContainers[0].Command
		if last := copied[len(copied)-1]; filepath.Base(last) != name {
			t.Errorf("the init container copies to %s", last)
		}
	})

	t.Run("the privileged variant differs in what it may alone", func(t *testing.T) {
		p := build(t, kubernetesFolder+"-privileged").pod()
		checkVolumes(t, p, m.maps)
		if s := p.Containers[0].SecurityContext; s.Privileged == nil || !*s.Privileged {
			t.Errorf("%+v", s)
		}
		if len(p.InitContainers) != 0 || !p.HostPID {
			t.Errorf("init containers %v, hostPID %v", p.InitContainers, p.HostPID)
		}
		p.Containers[0].SecurityContext = security
		if got, want := asJSON(t, p.Containers), asJSON(t, pod.Containers); got != want {
			t.Errorf("its container is\n%s\nnot\n%s", got, want)
		}
	})
}

// A profile of a Kubernetes node is read by containerd as the OCI's LinuxSeccomp, which has no keys
// but these.
func TestSeccompProfile(t *testing.T) {
	var profile struct {
		DefaultAction   string   `json:"defaultAction"`
		DefaultErrnoRet int      `json:"defaultErrnoRet"`
		Architectures   []string `json:"architectures"`
		Syscalls        []struct {
			Names  []string `json:"names"`
			Action string   `json:"action"`
			Args   []struct {
				Index    int    `json:"index"`
				Value    uint64 `json:"value"`
				ValueTwo uint64 `json:"valueTwo"`
				Op       string `json:"op"`
			} `json:"args"`
		} `json:"syscalls"`
	}
	decoder := json.NewDecoder(strings.NewReader(
		read(t, filepath.Join(kubernetesFolder, "allocscope-seccomp.json"))))
	decoder.DisallowUnknownFields()
	tracertest.NoError(t, decoder.Decode(&profile))

	var names []string
	for _, s := range profile.Syscalls {
		if s.Action != "SCMP_ACT_ALLOW" {
			t.Errorf("%v: %s", s.Names, s.Action)
		}
		names = append(names, s.Names...)
	}
	for _, name := range []string{"bpf", "perf_event_open"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not allowed", name)
		}
	}
	for _, name := range []string{
		"mount", "unshare", "setns", "ptrace", "process_vm_writev", "init_module", "keyctl",
	} {
		if slices.Contains(names, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	if profile.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("all else: %s", profile.DefaultAction)
	}
}

func checkVolumes(t *testing.T, pod core.PodSpec, configs map[string]core.ConfigMap) {
	t.Helper()
	unused := make(map[string]bool)
	for _, v := range pod.Volumes {
		unused[v.Name] = true
		if v.ConfigMap != nil && !slices.ContainsFunc(slices.Collect(maps.Values(configs)), func(c core.ConfigMap) bool {
			return c.Name == v.ConfigMap.Name
		}) {
			t.Errorf("volume %s is of an unknown ConfigMap %s", v.Name, v.ConfigMap.Name)
		}
	}
	known := maps.Clone(unused)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, mount := range c.VolumeMounts {
			if !known[mount.Name] {
				t.Errorf("container %s mounts an unknown volume %s", c.Name, mount.Name)
			}
			delete(unused, mount.Name)
		}
	}
	for name := range unused {
		t.Errorf("nobody mounts volume %s", name)
	}
}

// documentedCapabilities are those that docs/guides/privileges.md lists.
func documentedCapabilities(t *testing.T) (names []string) {
	t.Helper()
	page := read(t, "../../docs/guides/privileges.md")
	row := regexp.MustCompile(`(?m)^\| (CAP_[A-Z_]+) \|`)
	for _, row := range row.FindAllStringSubmatch(page, -1) {
		names = append(names, row[1])
	}
	if len(names) == 0 {
		t.Fatal("the page lists no capabilities")
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw := tracertest.Must(os.ReadFile(path))(t)
	return string(raw)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text := tracertest.Must(json.MarshalIndent(v, "", " "))(t)
	return string(text)
}
