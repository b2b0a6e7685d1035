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
		{"9:cpu:/kubepods-besteffort-pod1.slice:cri-containerd:" + id + "\n", "0123456789ab"},
		{"0::/lxc.payload.trainer/system.slice\n", "trainer"},
		{"0::/machine.slice/machine-debian.scope\n", "debian"},
		{"0::/docker/" + id[:63] + "\n", ""},
		{"no colon\n0:no path\n", ""},
	} {
		if got := innermost(c.membership, containerOf); got != c.want {
			t.Errorf("%q is in %q, want %q", c.membership, got, c.want)
		}
	}
}

// TestPodOf has the forms of the kubelet's drivers cgroupfs and systemd, of cgroup versions 1 and 2.
func TestPodOf(t *testing.T) {
	const uid, underscored = "3f5e1a2b-4c6d-7e8f-9a0b-1c2d3e4f5a6b", "3f5e1a2b_4c6d_7e8f_9a0b_1c2d3e4f5a6b"
	const static = "0123456789abcdef0123456789abcdef" // of a file on the node
	id := strings.Repeat("0123456789abcdef", 4)
	const slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
	for _, c := range []struct{ membership, want string }{
		{"0::" + slices + underscored + ".slice/cri-containerd-" + id + ".scope\n", uid},
		{"0::" + slices + underscored + ".slice/crio-" + id + ".scope/container\n", uid},
		{"0::" + slices + underscored + ".slice/docker-" + id + ".scope\n", uid},
		{"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/crio-" + id + "\n", uid},
		{"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/" +
			"kubelet-kubepods-besteffort-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", uid},
		{"11:blkio:/kubepods/burstable/pod" + uid + "/" + id + "\n", uid},
		{"12:pids:/kubepods/pod" + uid + "/" + id + "\n11:memory:/kubepods/pod" + uid + "/" + id + "\n", uid},
		{"13:memory:/system.slice/containerd.service/kubepods-besteffort-pod" + underscored +
			".slice:cri-containerd:" + id + "\n", uid},
		{"0::/kubepods/burstable/pod" + static + "/" + id + "\n", static},
		{"0::/../../kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", uid},
		{"0::/docker/" + id + "/kubelet/kubepods/besteffort/pod" + uid + "/" + id + "\n", uid},
		{"0::/docker/" + id + "\n", ""},
		{"0::/machine.slice/machine-libpod_pod_" + id + ".slice/libpod-" + id + ".scope\n", ""},
		{"0::/kubepods/burstable/podinfo/" + id + "\n", ""},
		{"0::/kubepods/burstable/pod" + uid + "\x1b[2J/" + id + "\n", ""},
		{"0::/kubepods/burstable/pod" + strings.ToUpper(uid) + "/" + id + "\n", ""},
		{"0::/kubepods/burstable/tripod" + uid + "/" + id + "\n", ""},
		{"0::/user.slice/user-1000.slice/session-3.scope\n", ""},
		{"", ""},
	} {
		if got := innermost(c.membership, podOf); got != c.want {
			t.Errorf("%q is in %q, want %q", c.membership, got, c.want)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	const pod = "01234567_89ab_cdef_0123_456789abcdef"
	for _, c := range []struct{ membership, want string }{
		{"", ""},
		{"0::/\n", ""},
		{"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", ""},
		{"0::/user.slice/user-1000.slice/session-3.scope\n", "user 1000"},
		// a container that a user makes, and names as the user likes
		{
			"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope\n",
			"user 1000",
		},
		{"0::/system.slice/docker-" + id + ".scope/user-0.slice\n", "container 0123456789ab"},
		{
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + pod +
				".slice/cri-containerd-" + id + ".scope\n", "pod 01234567-89ab-cdef-0123-456789abcdef",
		},
		{"0::/../cri-containerd-" + id + ".scope\n", "container 0123456789ab"},
	} {
		if got := ownerOf(c.membership); got != c.want {
			t.Errorf("%q is of %q, want %q", c.membership, got, c.want)
		}
	}
}
