package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

func TestContainerNotes(t *testing.T) {
	limit := int64(2048 * mib)
	beside := []summary.ContainerRow{
		{
			Kind: growth.ContainerShared, PID: 12, Name: "python3", File: "/dev/shm/a b (deleted)",
			StartBytes: 12 * mib, EndBytes: 192 * mib,
		},
		{Kind: growth.ContainerAnonymous, PID: 9, Name: "sidecar", StartBytes: 64 * mib, EndBytes: 64 * mib},
		{Kind: growth.ContainerCache, EndBytes: 30 * mib},
	}
	for name, c := range map[string]struct {
		container *summary.Container
		want      []string
	}{
		"no container": {},
		"no limit":     {&summary.Container{EndBytes: 402 * mib, Beside: beside}, nil},
		"nothing else": {&summary.Container{EndBytes: 402 * mib, LimitBytes: &limit}, nil},
		"two kinds": {&summary.Container{EndBytes: 402 * mib, LimitBytes: &limit, Beside: beside}, []string{
			"the container has 402 MiB of 2.00 GiB: 192 MiB files in RAM, most in a b of PID 12 (python3) " +
				"(+180 MiB); 64.0 MiB of other processes, most of PID 9 (sidecar)",
		}},
		"cache": {&summary.Container{EndBytes: 402 * mib, LimitBytes: &limit, Beside: beside[2:]}, []string{
			"the container has 402 MiB of 2.00 GiB: 30.0 MiB page cache, which the kernel takes back " +
				"(+30.0 MiB)",
		}},
	} {
		mustBe(t, containerNotes(&summary.Summary{Container: c.container}), c.want, name)
	}
}

// Each kind has a label of its own, and each row of a kind.
func TestContainerLabels(t *testing.T) {
	seen := make(map[string]summary.ContainerRow)
	var rows []summary.ContainerRow
	for kind := range containerKinds {
		rows = append(rows, summary.ContainerRow{Kind: kind})
	}
	rows = append(rows,
		summary.ContainerRow{Kind: growth.ContainerAnonymous, PID: 3, Name: "python3"},
		summary.ContainerRow{Kind: growth.ContainerAnonymous, Count: 3},
		summary.ContainerRow{Kind: growth.ContainerShared, File: "/dev/shm/x"},
		summary.ContainerRow{Kind: growth.ContainerShared, File: "/dev/shm/x", PID: 3, Name: "python3"},
		summary.ContainerRow{Kind: growth.ContainerCache, File: "/data/x", PID: 3, Name: "python3"},
		summary.ContainerRow{Kind: growth.ContainerShared, Count: 3},
		summary.ContainerRow{Kind: growth.ContainerShared, Count: 3, PID: 3, Name: "python3"},
	)
	for _, r := range rows {
		label := containerLabel(r)
		if other, isTaken := seen[label]; label == "" || isTaken {
			t.Errorf("%+v and %+v are %q", r, other, label)
		}
		seen[label] = r
	}
}

// Files in RAM that have no path are named by their holder.
func TestOutsideWhere(t *testing.T) {
	s := &summary.Summary{
		Outside: &summary.Outside{Kind: conclude.OutsideFiles, InCgroup: true},
		Container: &summary.Container{Rows: []summary.ContainerRow{
			{Kind: growth.ContainerAnonymous, PID: 5, Name: "python3", EndBytes: 900 * mib},
			{Kind: growth.ContainerShared, PID: 5, Name: "python3", File: "/memfd:a (deleted)", EndBytes: mib},
			{Kind: growth.ContainerShared, PID: 5, Name: "python3", Count: 172, EndBytes: 180 * mib},
			{Kind: growth.ContainerShared, EndBytes: 200 * mib},
		}},
	}
	want := []string{"172 smaller files of PID 5 (python3), +180 MiB"}
	mustBe(t, outsideWhere(s), want)
	if got := unlinkStep(s); !strings.HasPrefix(got, "close or unlink the files in RAM") {
		t.Errorf("%q: none of them has a path", got)
	}
	if s.Container = nil; outsideWhere(s) != nil || !strings.HasPrefix(unlinkStep(s), "unlink ") {
		t.Errorf("without rows: %q, %q", outsideWhere(s), unlinkStep(s))
	}
}

// Memory of a container that the tree does not hold is named by its process or by the kernel's
// kind.
func TestOutsideWho(t *testing.T) {
	grown := func(by int64) *summary.Outside {
		return &summary.Outside{
			Kind: conclude.OutsideProcesses, InCgroup: true, GrowthBytes: by * mib,
			Process: &summary.ContainerRow{
				PID: 8, Name: "sidecar", StartBytes: 64 * mib, EndBytes: 164 * mib,
			},
		}
	}
	kernel := func(rows ...summary.ContainerRow) *summary.Summary {
		return &summary.Summary{
			Outside:   &summary.Outside{Kind: conclude.OutsideKernel, InCgroup: true},
			Container: &summary.Container{Rows: rows},
		}
	}
	slab := summary.ContainerRow{Kind: growth.ContainerSlab, EndBytes: 20 * mib}
	sockets := summary.ContainerRow{Kind: growth.ContainerSockets, EndBytes: 80 * mib}
	rest := summary.ContainerRow{Kind: growth.ContainerKernel, EndBytes: 200 * mib}

	for name, c := range map[string]struct {
		got  []string
		want string
	}{
		"one process": {
			outsideWho(grown(100)), "PID 8 (sidecar), another process of the container, +100 MiB",
		},
		"several": {
			outsideWho(grown(300)),
			"other processes of the container, +300 MiB, most of it PID 8 (sidecar)",
		},
		"kind of kernel":   {outsideWhere(kernel(slab, sockets)), "buffers of sockets, +80.0 MiB"},
		"kernel by itself": {outsideWhere(kernel(slab, sockets, rest)), ""},
	} {
		mustBe(t, strings.Join(c.got[:min(1, len(c.got))], ""), c.want, name)
	}
	together := &summary.Together{PIDs: []int{5}, Outside: conclude.OutsideKernel}
	mustBe(t, othersText(together), "PID 5 and memory of the kernel")
}
