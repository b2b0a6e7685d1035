package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// A stressor of stress-ng holds memory of one kind.
type stressor struct {
	name  string
	args  string
	kinds []growth.Kind // of which the memory is; one of them or several
	asked int64         // bytes of these kinds; 0: the kernel's count alone is known
	until int64         // it is held once it has so many bytes
}

// leastBase is how much memory any process of stress-ng has at least, in bytes.
const leastBase = 3 << 19

// heldFrom is the resident memory from which on it is held, in bytes.
func (s *stressor) heldFrom() int64 {
	if s.asked > 0 {
		return s.asked + leastBase
	}
	return s.until
}

// Kinds of memory that malloc made, and of mappings.
var (
	ofMalloc = []growth.Kind{
		growth.KindHeap, growth.KindRetained, growth.KindUnclassified, growth.KindMetadata,
	}

	ofMmap  = []growth.Kind{growth.KindMmap}
	ofShmem = []growth.Kind{growth.KindShmem}
	ofFile  = []growth.Kind{growth.KindFile}
)

var stressors = []stressor{
	{
		name: "vm", args: "--vm 1 --vm-bytes 192M --vm-keep --vm-hang 0", kinds: ofMmap,
		asked: 192 << 20,
	},
	{
		name: "malloc", args: "--malloc 1 --malloc-bytes 64K --malloc-max 4096 --malloc-touch",
		kinds: ofMalloc,
	},
	{
		name: "memfd", args: "--memfd 1 --memfd-bytes 128M --memfd-fds 8", kinds: ofShmem,
		until: 64 << 20,
	},
	{
		name: "mmap-file", args: "--mmap 1 --mmap-bytes 64M --mmap-file", kinds: ofFile,
		until: 16 << 20,
	},

	{
		name: "vm-populate", args: "--vm 1 --vm-bytes 96M --vm-keep --vm-populate --vm-hang 0",
		kinds: ofMmap, asked: 96 << 20,
	},
	{
		name: "vm-hugepage", args: "--vm 1 --vm-bytes 128M --vm-keep --vm-madvise hugepage --vm-hang 0",
		kinds: ofMmap, asked: 128 << 20,
	},
	{
		name: "vm-write64", args: "--vm 1 --vm-bytes 64M --vm-keep --vm-method write64", kinds: ofMmap,
		asked: 64 << 20,
	},
	{
		name: "vm-locked", args: "--vm 1 --vm-bytes 64M --vm-keep --vm-locked --vm-hang 0",
		kinds: ofMmap, asked: 64 << 20,
	},
	{name: "bigheap", args: "--bigheap 1 --bigheap-growth 1M", kinds: ofMalloc, until: 128 << 20},
	{
		name: "stack", args: "--stack 1 --stack-fill", kinds: []growth.Kind{growth.KindStack},
		until: 6 << 20,
	},
	{name: "mmap", args: "--mmap 1 --mmap-bytes 64M", kinds: ofMmap, until: 32 << 20},
	{name: "mmapmany", args: "--mmapmany 1", kinds: ofMmap, until: 16 << 20},
	{name: "mremap", args: "--mremap 1 --mremap-bytes 64M", kinds: ofMmap, until: 16 << 20},
	{
		name: "shm-sysv", args: "--shm-sysv 1 --shm-sysv-bytes 64M --shm-sysv-segs 2", kinds: ofShmem,
		until: 60 << 20,
	},
	{name: "stream", args: "--stream 1", kinds: ofMmap},
	{name: "memrate", args: "--memrate 1 --memrate-bytes 64M", kinds: ofMmap, until: 64 << 20},
	{name: "memthrash", args: "--memthrash 1", kinds: ofMmap, until: 16 << 20},
	{name: "matrix", args: "--matrix 1 --matrix-size 2048", kinds: ofMmap, until: 40 << 20},
	{name: "tree", args: "--tree 1 --tree-size 1000000", kinds: ofMalloc, until: 40 << 20},
	{
		name: "skiplist", args: "--skiplist 1 --skiplist-size 1000000", kinds: ofMalloc,
		until: 40 << 20,
	},
	{name: "judy", args: "--judy 1 --judy-size 2000000", kinds: ofMalloc, until: 30 << 20},
	{name: "list", args: "--list 1 --list-size 1000000", kinds: ofMalloc, until: 20 << 20},
	{name: "hsearch", args: "--hsearch 1 --hsearch-size 1000000", kinds: ofMalloc},
	{name: "pagemove", args: "--pagemove 1 --pagemove-bytes 64M", kinds: ofMmap, until: 32 << 20},
	{name: "prefetch", args: "--prefetch 1", kinds: ofShmem, asked: 32 << 20},
	{
		name: "mergesort", args: "--mergesort 1 --mergesort-size 4194304", kinds: ofMalloc,
		until: 16 << 20,
	},
	{name: "heapsort", args: "--heapsort 1 --heapsort-size 4194304", kinds: ofMalloc, until: 16 << 20},
	{name: "bsearch", args: "--bsearch 1 --bsearch-size 4194304", kinds: ofMalloc, until: 16 << 20},
	{name: "tsearch", args: "--tsearch 1 --tsearch-size 1000000", kinds: ofMalloc, until: 12 << 20},
	{
		name: "radixsort", args: "--radixsort 1 --radixsort-size 2000000", kinds: ofMalloc,
		until: 16 << 20,
	},
	{
		name: "matrix-3d", args: "--matrix-3d 1 --matrix-3d-size 256", kinds: ofMmap,
		asked: 192 << 20,
	},
	{
		name: "vm-splice", args: "--vm-splice 1 --vm-splice-bytes 32M", kinds: ofMmap,
		asked: 32 << 20,
	},
	{name: "cache", args: "--cache 1", kinds: ofShmem, until: 30 << 20},
}

// stressorTasks returns the stressors.
func stressorTasks(c *campaign) (tasks []task) {
	for _, s := range stressors {
		tasks = append(tasks, task{
			Row: Row{Name: s.name, Source: "stress-ng 0.15.06"},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.measureStressor(ctx, s, r)
			},
		})
	}
	return c.few(tasks, 4)
}

// Times of a stressor.
const (
	holdAfter   = 20 * time.Second // then it is stopped, so that its memory stays as it is
	holdLate    = 20 * time.Second // it has not as much memory as it should
	summaryLate = time.Minute
)

// measureStressor runs a stressor below allocscope run, and compares the rows of its process that
// has most memory with the kernel's count. Each fork of a stressor waits some seconds, so that it
// is traced before it allocates.
func (c *campaign) measureStressor(ctx context.Context, one stressor, r *Row) error {
	ctx, stop := context.WithTimeout(ctx, c.duration+summaryLate)
	defer stop()
	out := filepath.Join(c.output, one.name)
	work, err := os.MkdirTemp("", "allocscope-truth-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(work)

	delay := filepath.Join(work, "delay_forks.so")
	err = compile(ctx, "gcc", "-shared", "-fPIC", "-o", delay,
		filepath.Join(c.testdata, "truth", "delay_forks.c"))
	if err != nil {
		return err
	}

	command := exec.CommandContext(ctx, c.allocscope, append([]string{
		"run", "--duration", c.duration.String(), "--output", out, "--force", "--", "stress-ng",
		"--temp-path", work, "--timeout", "0",
	}, strings.Fields(one.args)...)...)
	command.Env = append(os.Environ(), "LD_PRELOAD="+delay)
	harness.OwnGroup(command)
	if log, err := os.Create(out + ".log"); err == nil {
		defer log.Close()
		command.Stdout, command.Stderr = log, log
	}
	if err := command.Start(); err != nil {
		return err
	}

	defer func() {
		killAll(stressorsOf(command.Process.Pid))
		_ = command.Cancel()
		_ = command.Wait() // it was killed
	}()

	if err := wait(ctx, holdAfter); err != nil {
		return err
	}

	held, err := hold(ctx, command.Process.Pid, one.heldFrom())
	if err != nil {
		return err
	}

	s, err := awaitSummary(ctx, out)
	if err != nil {
		return err
	}

	truth, err := kernelCount(held)
	if err != nil {
		return err
	}

	r.judgeRows(one, held, s, truth)
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// stressorsOf returns the processes of stress-ng below a process.
func stressorsOf(pid int) (found []int) {
	for _, child := range meter.ChildrenOf(pid) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); err == nil &&
			strings.HasPrefix(string(comm), "stress-ng") {
			found = append(found, child)
		}
		found = append(found, stressorsOf(child)...)
	}
	return found
}

func killAll(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// hold stops all stressors below a process once one of them has so many bytes, and returns the one
// that has most.
func hold(ctx context.Context, pid int, until int64) (largest int, err error) {
	for late := time.Now().Add(holdLate); ; {
		found := stressorsOf(pid)
		if len(found) < 2 {
			return 0, errors.New("there is no stressor")
		}
		largest = slices.MaxFunc(found[1:], // the first one has started the others
			func(a, b int) int { return cmp.Compare(meter.RSS(a), meter.RSS(b)) })
		if meter.RSS(largest) >= until {
			for _, one := range found {
				_ = syscall.Kill(one, syscall.SIGSTOP) // it may have ended
			}
			return largest, nil
		}

		if time.Now().After(late) {
			return 0, fmt.Errorf("it has %.1f MiB", float64(meter.RSS(largest))/mib)
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// awaitSummary waits for the end of the trace; the command goes on.
func awaitSummary(ctx context.Context, out string) (*summary.Summary, error) {
	for {
		if _, err := os.Stat(filepath.Join(out, folder.SummaryFile)); err == nil {
			if s, err := harness.Summary(out); err == nil && s.Ended != summary.EndedRunning {
				return s, nil
			}
		}
		if err := wait(ctx, time.Second); err != nil {
			return nil, fmt.Errorf("there is no summary: %w", err)
		}
	}
}

// A class of memory is what /proc/PID/smaps tells apart.
type class string

const (
	private class = "anonymous"
	shared  class = "shmem"
	files   class = "file"
)

// kernelCount returns the resident bytes of a process by class, of /proc/PID/status.
func kernelCount(pid int) (map[class]int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}

	count := make(map[class]int64)
	for line := range strings.Lines(string(text)) {
		var kib int64
		key, value, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
			continue
		}
		switch key {
		case "RssAnon":
			count[private] = kib << 10
		case "RssFile":
			count[files] = kib << 10
		case "RssShmem":
			count[shared] = kib << 10
		}
	}
	return count, nil
}

// classOf is the class of a row's kind. Pages of a file that were written to are anonymous, and
// rows of kind file have them too.
func classOf(k growth.Kind) class {
	switch k {
	case growth.KindShmem:
		return shared
	case growth.KindFile, growth.KindKernel, growth.KindDeviceFile:
		return files
	}
	return private
}

// Bounds of the rows.
const (
	maxRowError     = 0.02
	maxRowBytes     = 1 << 20 // that never count
	maxUnexplained  = 0.01
	minShareOfClass = 0.9     // that is in the rows, where no size was asked for
	baseBytes       = 3 << 20 // that any process of stress-ng has
)

// judgeRows compares the rows of a process with the kernel's count.
func (r *Row) judgeRows(one stressor, pid int, s *summary.Summary, truth map[class]int64) {
	var sum, unexplained, inKinds int64
	byKind := make(map[growth.Kind]int64)
	for _, row := range s.Breakdown {
		if row.Process != pid || row.Kind == growth.KindSwapped {
			continue
		}
		sum += row.EndBytes
		byKind[row.Kind] += row.EndBytes
		if row.Kind == growth.KindUnexplained {
			unexplained = row.EndBytes
		}
		if slices.Contains(one.kinds, row.Kind) {
			inKinds += row.EndBytes
		}
	}

	rss := truth[private] + truth[shared] + truth[files]
	in := classOf(one.kinds[0])
	want := cmp.Or(one.asked, truth[in])

	r.Truth = fmt.Sprintf("%s, %.1f MiB of %.1f", joined(one.kinds), float64(want)/mib,
		float64(rss)/mib)
	r.Said = largestKinds(byKind)
	var faults []string
	isElsewhere := false
	if off := inKinds - want; one.asked > 0 && abs(off) > allowed(want) ||
		one.asked == 0 && float64(inKinds) < minShareOfClass*float64(want-baseBytes) {
		isElsewhere = true
		faults = append(faults, fmt.Sprintf("in its rows %.1f MiB", float64(inKinds)/mib))
	}

	if abs(sum-rss) > allowed(rss) {
		faults = append(faults, fmt.Sprintf("the rows sum to %.1f MiB", float64(sum)/mib))
	}

	if float64(abs(unexplained)) > maxUnexplained*float64(rss) && abs(unexplained) > maxRowBytes {
		faults = append(faults, fmt.Sprintf("unexplained %.1f MiB", float64(unexplained)/mib))
	}

	if cost := s.Overhead; cost != nil {
		r.CPU = cost.OwnS + cost.SearchS
		own := r.CPU - cost.SearchAtEndS
		if s.DurationS > costFrom.Seconds() && own > cost.OwnLimitS {
			faults = append(faults, fmt.Sprintf("own CPU time %.1f s, its limit is %.1f",
				own, cost.OwnLimitS))
		}
	}

	switch {
	case len(faults) == 0:
		r.Outcome = Right
	case len(faults) == 1 && isElsewhere &&
		float64(inKinds+byKind[growth.KindBeforeTracing]+byKind[growth.KindOlder]) > minShareOfClass*float64(want-baseBytes):
		r.Outcome = Undecided // its kind is not said
	default:
		r.Outcome = Wrong
	}

	r.Said = strings.Join(append([]string{r.Said}, faults...), "; ")
}

// costFrom is the length of a trace from which on its own cost must be within the limit: a start
// costs more than the limit of a short one.
const costFrom = 2 * time.Minute

// allowed is how far a size may be from the truth.
func allowed(bytes int64) int64 { return max(maxRowBytes, int64(maxRowError*float64(bytes))) }

func abs(n int64) int64 { return max(n, -n) }

func joined(kinds []growth.Kind) string {
	var texts []string
	for _, kind := range kinds {
		texts = append(texts, string(kind))
	}
	return strings.Join(texts, " or ")
}

// largestKinds are the kinds with most bytes, in words.
func largestKinds(byKind map[growth.Kind]int64) string {
	var kinds []growth.Kind
	for kind, bytes := range byKind {
		if bytes > maxRowBytes {
			kinds = append(kinds, kind)
		}
	}

	slices.SortFunc(kinds, func(a, b growth.Kind) int {
		return cmp.Or(cmp.Compare(byKind[b], byKind[a]), cmp.Compare(a, b))
	})
	var texts []string
	for _, kind := range kinds[:min(3, len(kinds))] {
		texts = append(texts, fmt.Sprintf("%s %.1f MiB", kind, float64(byKind[kind])/mib))
	}
	return strings.Join(texts, ", ")
}
