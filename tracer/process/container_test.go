package process

import (
	"strings"
	"testing"
)

func TestContainerOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, c := range []struct{ membership, want string }{
		{"", ""},
		{"0::/\n", ""},
		{"0::/user.slice/user-1000.slice/session-3.scope\n", ""},
		{"0::/system.slice/docker-" + id + ".scope\n", "0123456789ab"},
		{"12:memory:/docker/" + id + "\n0::/\n", "0123456789ab"},
		{"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope\n", "0123456789ab"},
		{"0::/machine.slice/libpod-" + id + ".scope/container\n", "0123456789ab"},
		{"0::/../docker-" + id + ".scope/init\n", "0123456789ab"},
		{"0::/lxc.payload.trainer/system.slice\n", "trainer"},
		{"0::/machine.slice/machine-debian.scope\n", "debian"},
		{"0::/docker/" + id[:63] + "\n", ""},
		{"no colon\n0:no path\n", ""},
	} {
		if got := containerOf(c.membership); got != c.want {
			t.Errorf("%q is in %q, want %q", c.membership, got, c.want)
		}
	}
}

func TestAllocatorName(t *testing.T) {
	for _, c := range []struct {
		paths, want string
	}{
		{"/usr/bin/python3 /lib/x86_64-linux-gnu/libc.so.6", "glibc"},
		{"/lib/x86_64-linux-gnu/libc-2.31.so", "glibc"},
		{"/lib/libc.so.6 /usr/lib/libjemalloc.so.2", "jemalloc"},
		{"/lib/libc.so.6 /usr/lib/libtcmalloc_minimal.so.4", "tcmalloc"},
		{"/lib/libc.so.6 /usr/lib/libmimalloc.so.2.0", "mimalloc"},
		{"/lib/ld-musl-x86_64.so.1", "musl"},
		{"/usr/bin/static [heap]", ""},
	} {
		var maps []Mapping
		for _, path := range strings.Fields(c.paths) {
			maps = append(maps, Mapping{Path: path})
		}
		if got := AllocatorName(maps); got != c.want {
			t.Errorf("of %s: %q, want %q", c.paths, got, c.want)
		}
	}
}
