package shim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// musl is gcc for programs with that C library.
const musl = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"

func buildPreloaded(t testing.TB, flags ...string) string {
	t.Helper()
	flags = append([]string{"-fno-builtin", "-pthread"}, flags...)
	return tracertest.Build(t, "preloaded.c", flags...)
}

// TestCalls compares the events of each call with the program's own record: their order, addresses
// and sizes, at interval 1. The program itself checks the results of the calls, and errno.
func TestCalls(t *testing.T) {
	for name, flags := range map[string][]string{"glibc": nil, "musl": {musl}} {
		t.Run(name, func(t *testing.T) {
			program := buildPreloaded(t, flags...)
			r := newRecorder(t)
			r.mark(MaxMarkers)
			lines, events := r.run(program, "calls")

			var want []event
			for _, line := range lines {
				var what string
				e := event{Kind: freed}
				if n, _ := fmt.Sscan(line, &what, &e.Object, &e.Size); n == 3 {
					e.Kind, e.Weighted = allocated, e.Size
				}
				want = append(want, e)
			}
			if len(want) < 30 {
				t.Fatalf("the program made few calls: %q", lines)
			}

			got := make([]event, 0, len(events))
			for _, e := range events {
				if e.PID = 0; e.Kind == freed {
					e.Size, e.Weighted = 0, 0
				}
				got = append(got, e)
			}
			isFirst := func(e event) bool { return e == want[0] }
			got = got[max(0, slices.IndexFunc(got, isFirst)):]
			got = got[:min(len(got), len(want))]
			for i, e := range got {
				if e != want[i] {
					t.Fatalf("event %d is %+v, want %+v", i, e, want[i])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d events, want %d", len(got), len(want))
			}
		})
	}
}

// run lets a program execute its arguments, and returns its output, and its events meanwhile.
func (r *recorder) run(program string, arguments ...string) (lines []string, events []event) {
	r.t.Helper()
	target := r.start("", program, arguments...)
	target.Await("ready")
	r.read()
	target.Say("go")
	lines = target.Await("done")
	target.Hangup()
	return lines, r.read()
}

// TestKeep has more objects alive than the first part of the table can hold.
func TestKeep(t *testing.T) {
	const objects = 300_000
	mustFree(t, 24, objects, objects, "keep", fmt.Sprint(objects))
}

// TestThreads frees in one thread the objects of another one.
func TestThreads(t *testing.T) {
	const threads, each = 8, 20_000
	mustFree(t, 40, threads*each, 1, "threads", fmt.Sprint(threads), fmt.Sprint(each))
}

// mustFree lets the program allocate so many objects of a size and free all of them. At least so
// many are alive at once.
func mustFree(t *testing.T, size uint64, objects, atOnce int, arguments ...string) {
	t.Helper()
	r := newRecorder(t)
	r.mark(MaxMarkers)
	_, events := r.run(buildPreloaded(t), arguments...)

	counts, most := make(map[kind]int), 0
	alive := make(map[uint64]bool)
	for _, e := range events {
		switch {
		case e.Kind == allocated && e.Size == size:
			if alive[e.Object] {
				t.Fatalf("%#x was allocated twice, and not freed between", e.Object)
			}
			alive[e.Object] = true
			most = max(most, len(alive))
			counts[allocated]++
		case e.Kind == freed && alive[e.Object]:
			delete(alive, e.Object)
			counts[freed]++
		}
	}
	want := map[kind]int{allocated: objects, freed: objects}
	if !maps.Equal(counts, want) || most < atOnce {
		t.Errorf("allocated and freed %v, want %v; %d were alive at once", counts, want, most)
	}
}

// TestForks forks children in a storm. Each has events of its own, and reports that it starts.
func TestForks(t *testing.T) {
	const children = 1000
	r := newRecorder(t)
	r.mark(MaxMarkers)
	lines, events := r.run(buildPreloaded(t), "forks", fmt.Sprint(children))

	byPID := make(map[uint32]map[kind]int)
	for _, e := range events {
		if byPID[e.PID] == nil {
			byPID[e.PID] = make(map[kind]int)
		}
		if e.Kind != allocated || e.Size == 32 {
			byPID[e.PID][e.Kind]++
		}
	}
	if len(lines) != children {
		t.Fatalf("%d children, want %d", len(lines), children)
	}
	want := map[kind]int{started: 1, allocated: 10, freed: 9}
	for _, line := range lines {
		var pid uint32
		fmt.Sscan(line, &pid)
		if !maps.Equal(byPID[pid], want) {
			t.Fatalf("events of child %d: %v, want %v", pid, byPID[pid], want)
		}
	}
}

// TestForkedDraws: forked children draw distances of their own.
func TestForkedDraws(t *testing.T) {
	const children = 200
	r := newRecorder(t)
	r.mark(MarkersOf(32)) // of ten objects of as many six or so
	lines, events := r.run(buildPreloaded(t), "forks", fmt.Sprint(children))

	// The second draw of a child is its own; the first may be the parent's draw before the fork.
	frees := make(map[uint32]int)
	for _, e := range events {
		if e.Kind == allocated && e.Size == 32 {
			frees[e.PID]++
		}
	}
	different := make(map[int]bool)
	for _, count := range frees {
		different[count] = true
	}
	if len(lines) != children || len(different) < 3 {
		t.Errorf("%d children have sampled alike: %v", len(lines), frees)
	}
}

// semaphores returns the values of the semaphores of a process.
func (r *recorder) semaphores(pid int) map[string]uint16 {
	r.t.Helper()
	memory := tracertest.Must(os.Open(fmt.Sprintf("/proc/%d/mem", pid)))(r.t)
	defer memory.Close()

	base := r.baseIn(pid)
	values := make(map[string]uint16)
	for name, notes := range r.notes {
		var raw [2]byte
		tracertest.Must(memory.ReadAt(raw[:], int64(base+notes[0].semaphore)))(r.t)
		values[name] = binary.NativeEndian.Uint16(raw[:])
	}
	return values
}
