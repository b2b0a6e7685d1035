package tracer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/container"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	heldMiB    = 48 // by each program
	countedMiB = 47 // at least: before Linux 6.2 a thread's count is up to 64 pages behind
	ramFolder  = "/dev/shm"
)

// TestKernelContainer compares the rows of a container with memory of one kind each, whose size
// the program has chosen. The kernel's own count is the sum.
func TestKernelContainer(t *testing.T) {
	onDisk := t.TempDir()
	memory := func(kinds ...growth.ContainerKind) []growth.ContainerKind { return kinds }
	ofKernel := memory(growth.ContainerReclaimable, growth.ContainerSlab, growth.ContainerSockets,
		growth.ContainerKernel)
	for _, c := range []struct {
		kind, folder string
		rows         []growth.ContainerKind
		file         string // the path of the row begins with it
		isHeld       bool   // by the program
		least        int64  // bytes
	}{
		{"anonymous", ramFolder, memory(growth.ContainerAnonymous), "", true, countedMiB << 20},
		{"memfd", ramFolder, memory(growth.ContainerShared), "/memfd:tensors", true, countedMiB << 20},
		{"small memfds", ramFolder, memory(growth.ContainerShared), "", true, countedMiB << 20},
		{"mapped memfd", ramFolder, memory(growth.ContainerShared), "/memfd:batches", true, countedMiB << 20},
		{"tmpfs", ramFolder, memory(growth.ContainerShared), ramFolder, false, countedMiB << 20},
		{"page cache", onDisk, memory(growth.ContainerCache), onDisk, true, countedMiB << 20},
		{"names", ramFolder, ofKernel, "", false, heldMiB << 18},
		{"sockets", ramFolder, ofKernel, "", false, heldMiB << 18},
	} {
		if c.folder == onDisk && !isOnDisk(t, onDisk) {
			continue // a machine without a disk
		}
		t.Run(c.kind, func(t *testing.T) {
			folder := tracertest.Must(os.MkdirTemp(c.folder, "allocscope-test-"))(t)
			t.Cleanup(func() { os.RemoveAll(folder) })
			g := tracertest.NewCgroup(t)
			target := hold(t, g, c.kind, folder)
			found := readContainer(t, g, target.PID())
			var sum int64
			for _, row := range found.Rows {
				isHeld := !c.isHeld || row.PID == target.PID()
				if isHeld && slices.Contains(c.rows, row.Kind) && strings.HasPrefix(row.File, c.file) {
					sum += row.Bytes
				}
			}
			if sum < c.least {
				t.Errorf("%d bytes, want %d, of %+v", sum, c.least, found.Rows)
			}
		})
	}
}

// A fork shares its memory with its parent, and the cgroup is charged once.
func TestKernelContainerForks(t *testing.T) {
	g := tracertest.NewCgroup(t)
	target := hold(t, g, "forked", ramFolder)
	of := make(map[growth.ContainerKind]int64)
	for _, row := range readContainer(t, g, target.PID()).Rows {
		of[row.Kind] += row.Bytes
	}
	if of[growth.ContainerAnonymous] < 2*countedMiB<<20 || of[growth.ContainerForked] > -countedMiB<<20 {
		t.Errorf("%v, want twice %d MiB less once", of, heldMiB)
	}
}

// The limit of a parent is the container's: the memory of all below it counts.
func TestKernelContainerParent(t *testing.T) {
	g := tracertest.NewCgroup(t)
	const limit = 1 << 30
	g.SetLimit(t, limit)
	if g.IsV2 {
		must(t, os.WriteFile(filepath.Join(g.Folder, "cgroup.subtree_control"), []byte("+memory"), 0o644))
	}
	target := hold(t, g.Child(t, "job"), "anonymous", ramFolder)
	other := hold(t, g.Child(t, "sidecar"), "anonymous", ramFolder)
	found := readContainer(t, g, target.PID())
	pids := make(map[int]bool)
	for _, row := range found.Rows {
		if row.Kind == growth.ContainerAnonymous && row.Bytes >= countedMiB<<20 {
			pids[row.PID] = true
		}
	}
	r := container.NewReader(openProcess(t, target.PID()))
	defer r.Close()
	if r.Read(0) == nil || !r.Has(other.PID()) || r.Has(os.Getpid()) {
		t.Error("the memory of the sidecar counts against the limit, and of the test it does not")
	}
	if found.Limit != limit || !pids[target.PID()] || !pids[other.PID()] {
		t.Errorf("limit %d, rows %+v", found.Limit, found.Rows)
	}
}

// Where a process has ended, its container is not read: the memory is free by then.
func TestKernelContainerEnds(t *testing.T) {
	g := tracertest.NewCgroup(t)
	target := hold(t, g, "anonymous", ramFolder)
	r := container.NewReader(openProcess(t, target.PID()))
	defer r.Close()
	if r.Read(0) == nil {
		t.Error("it lives, and was not read")
	}

	must(t, target.Process.Kill())
	tracertest.Must(target.Process.Wait())(t)
	if found := r.Read(0); found != nil {
		t.Errorf("it has ended: %+v", found)
	}
}

// hold starts a program that holds memory of a kind in a cgroup.
func hold(t *testing.T, g tracertest.Cgroup, kind, folder string) *tracertest.Target {
	t.Helper()
	program := tracertest.Build(t, "container.c")
	command := exec.Command(program, g.Folder, kind, strconv.Itoa(heldMiB), folder)
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return target
}

// readContainer reads the container of a process, whose rows must sum to the charge.
func readContainer(t *testing.T, g tracertest.Cgroup, pid int) *growth.Container {
	t.Helper()
	r := container.NewReader(openProcess(t, pid))
	defer r.Close()

	const settling = 4 << 20 // charged ahead, and other CPUs' counts
	for attempt := 1; ; attempt++ {
		found := r.Read(0)
		if found == nil {
			t.Fatal("no container")
		}
		var sum, rest int64
		for _, row := range found.Rows {
			sum += row.Bytes
			if row.Kind == growth.ContainerRest {
				rest = row.Bytes
			}
		}

		charged := int64(g.Charged(t))
		if sum == found.Charged && max(rest, -rest) <= settling && max(charged-sum, sum-charged) <= settling {
			return found
		}
		if attempt == 3 {
			t.Errorf("rows sum to %d of %d bytes, %d of no kind; the kernel has charged %d: %+v", sum,
				found.Charged, rest, charged, found.Rows)
			return found
		}
		time.Sleep(2 * time.Second) // FLUSH_TIME of mm/memcontrol.c, after which memory.stat is current
	}
}

// isOnDisk reports whether a folder is on a block device.
func isOnDisk(t *testing.T, folder string) bool {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Stat(folder, &stat))
	return unix.Major(uint64(stat.Dev)) != 0
}
