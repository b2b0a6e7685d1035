package process

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// containerID matches the names of containers by Docker, containerd, CRI-O and Podman:
// "docker-ID.scope", "cri-containerd-ID.scope", "crio-ID", or the ID alone. A runtime that takes
// the slice of systemd's driver for a directory has "SLICE:cri-containerd:ID".
var containerID = regexp.MustCompile(`(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$`)

// podUID matches the kubelet's names of pods: "podUID" by its driver cgroupfs, and
// "kubepods-burstable-podUID.slice" by systemd, which has underscores for dashes. The UID of a
// static pod has none of them.
var podUID = regexp.MustCompile(`(?:^|-)pod(` +
	`[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice(?::.*)?)?$`)

// Prefixes of cgroups of containers that have a name: of LXC, and of systemd-nspawn and libvirt.
var containerPrefixes = []string{"lxc.payload.", "machine-"}

const (
	shortIDLength     = 12 // as docker ps and crictl ps print them
	maxContainerBytes = 64
)

// Container returns the short ID or the name of the container that a process runs in, by its cgroup,
// printable; empty: it runs in none that is known.
func (c *counters) Container() string {
	return growth.Truncate(growth.Printable(c.innermost(containerOf)), maxContainerBytes)
}

// Pod returns the UID of the Kubernetes pod that a process runs in, by its cgroup; empty: it runs in
// none.
func (c *counters) Pod() string { return c.innermost(podOf) }

// Cgroup returns the text of /proc/PID/cgroup, printable but for its newlines: the paths of the cgroups
// of the process. It is empty if it cannot be read.
func (c *counters) Cgroup() string {
	raw, err := c.read("cgroup")
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	for i := range lines {
		lines[i] = growth.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// innermost returns the ID in the name of a cgroup of the process; empty: no name has one.
func (c *counters) innermost(of func(cgroup string) string) string {
	raw, err := c.read("cgroup")
	if err != nil {
		return ""
	}
	return innermost(string(raw), of)
}

// innermost returns the ID in the name of the innermost cgroup that has one, in the text of
// /proc/PID/cgroup.
func innermost(membership string, of func(cgroup string) string) string {
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for _, name := range slices.Backward(components(parts[2])) {
			if found := of(name); found != "" {
				return found
			}
		}
	}
	return ""
}

// containerOf returns the container that has a cgroup; empty: none has.
func containerOf(cgroup string) string {
	if id := containerID.FindStringSubmatch(cgroup); id != nil {
		return id[1][:shortIDLength]
	}
	for _, prefix := range containerPrefixes {
		if rest, ok := strings.CutPrefix(cgroup, prefix); ok {
			return strings.TrimSuffix(rest, ".scope")
		}
	}
	return ""
}

// podOf returns the UID of the pod that has a cgroup; empty: none has.
func podOf(cgroup string) string {
	if uid := podUID.FindStringSubmatch(cgroup); uid != nil {
		return strings.ReplaceAll(uid[1], "_", "-")
	}
	return ""
}

// An Owner is who answers for a process, to be treated alike for all of its processes.
type Owner struct {
	// UID is the effective one.
	UID uint32
	// Name distinguishes owners. A container, or all of a pod, is an owner: its users have the UIDs
	// of others there. Elsewhere it is the user who has logged in, or started the process.
	Name string
}

// ReadOwner returns the owner of a process. It does not need an answer of the process.
func ReadOwner(pid int) (o Owner, err error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return o, fmt.Errorf("read status: %w", err)
	}
	membership, err := ReadFile(filepath.Join(folder, "cgroup"))
	if err != nil {
		return o, fmt.Errorf("read cgroup: %w", err)
	}

	_, ids, _ := strings.Cut(string(status), "\nUid:")
	var real uint32
	if _, err := fmt.Sscan(ids, &real, &o.UID); err != nil {
		return o, fmt.Errorf("read status: UID: %w", err)
	}

	o.Name = cmp.Or(ownerOf(string(membership)), userOwner+strconv.Itoa(int(real)))
	return o, nil
}

// userSlice matches systemd's name of the cgroup of all that a logged-in user has started. All
// below it may be made by the user, containers and their UIDs too.
var userSlice = regexp.MustCompile(`^user-([0-9]+)\.slice$`)

const userOwner = "user "

// ownerOf returns the owner by the text of /proc/PID/cgroup; empty: it does not say who. The outermost
// name counts, which the system has given.
func ownerOf(membership string) string {
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for _, name := range components(parts[2]) {
			if uid := userSlice.FindStringSubmatch(name); uid != nil {
				return userOwner + uid[1]
			}
			if pod := podOf(name); pod != "" {
				return "pod " + pod
			}
			if container := containerOf(name); container != "" {
				return "container " + container
			}
		}
	}
	return ""
}
