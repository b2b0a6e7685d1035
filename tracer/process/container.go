package process

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// containerID is what Docker, containerd, CRI-O and Podman call a container: "docker-ID.scope",
// "cri-containerd-ID.scope", "crio-ID", or the ID alone.
var containerID = regexp.MustCompile(`(?:^|-)([0-9a-f]{64})(?:\.scope)?$`)

// Prefixes of cgroups of containers that have a name: of LXC, and of systemd-nspawn and libvirt.
var containerPrefixes = []string{"lxc.payload.", "machine-"}

const (
	shortIDLength     = 12 // as docker ps and crictl ps print them
	maxContainerBytes = 64
)

// Container returns the short ID or the name of the container that a process runs in, by its cgroup,
// printable; empty: it runs in none that is known.
func (p *Process) Container() string {
	raw, err := p.read("cgroup")
	if err != nil {
		return ""
	}
	return growth.Truncate(growth.Printable(containerOf(string(raw))), maxContainerBytes)
}

// containerOf returns the innermost container of the text of /proc/PID/cgroup.
func containerOf(membership string) string {
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}

		for _, name := range slices.Backward(components(parts[2])) {
			if id := containerID.FindStringSubmatch(name); id != nil {
				return id[1][:shortIDLength]
			}
			for _, prefix := range containerPrefixes {
				if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
					return strings.TrimSuffix(rest, ".scope")
				}
			}
		}
	}
	return ""
}

// allocatorLibraries are the names of files whose malloc a process uses where they are mapped, the
// ones that replace that of the C library first.
var allocatorLibraries = []struct{ prefix, name string }{
	{"libjemalloc", "jemalloc"},
	{"libtcmalloc", "tcmalloc"},
	{"libmimalloc", "mimalloc"},
	{"ld-musl", "musl"},
	{"libc.musl", "musl"},
	{"libc.so.", "glibc"},
	{"libc-2.", "glibc"},
}

// AllocatorName is the allocator of a process by the names of the files that it has mapped; empty: a
// static program, or one that is not known.
func AllocatorName(maps []Mapping) string {
	for _, library := range allocatorLibraries {
		for _, m := range maps {
			if strings.HasPrefix(filepath.Base(m.Path), library.prefix) {
				return library.name
			}
		}
	}
	return ""
}
