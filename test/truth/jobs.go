package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/test/harness"
)

// A job is a program of testdata/truth/jobs, whose truth stands in its file.
type job struct {
	name  string // of the file
	truth string
	// right are the conclusions that decide the case, and are so. grows: at a constant rate, by a
	// line that is marked; both have to be right, too. function: it is named in place of the line.
	right    []conclusion
	grows    bool
	function string
	// below: the process that grows is a child of the one that is traced.
	below bool
	// keptBy is the variable that keeps the memory, as Python code; empty: there is none, or it is
	// known by several names.
	keptBy string
	// rate in MiB a minute, where it is no process that grows; 0: by the kernel's count of RSS.
	rate float64
}

// A conclusion is a verdict as far as a truth depends on it: a class, or one of the reasons below.
type conclusion string

const (
	isLost       conclusion = conclusion(lost)
	isFragmented conclusion = conclusion(verdict.ReasonFragmentation)
	isLeak       conclusion = conclusion(verdict.ClassLeak)
	isFlat       conclusion = conclusion(verdict.ClassPlateau)
	isSpiky      conclusion = conclusion(verdict.ClassSpikyPlateau)
	isSaturating conclusion = conclusion(verdict.ClassSaturating)
	isFilling    conclusion = conclusion(verdict.ClassFillsUp)
)

// open are the conclusions that decide nothing.
var open = []conclusion{
	conclusion(verdict.ClassGrowing), conclusion(verdict.ClassSuspected),
	conclusion(verdict.ClassTooShort),
}

var (
	leaking = []conclusion{isLeak}
	losing  = []conclusion{isLost, isLeak}
	filling = []conclusion{isFilling}
	steady  = []conclusion{isFlat}
	spiky   = []conclusion{isSpiky, isFlat}
)

var jobs = []job{
	{
		name: "train_list.py", truth: "leak: a list of outputs",
		right: leaking, grows: true, keptBy: "__main__.history",
	},
	{
		name: "train_dict.py", truth: "leak: a dict of outputs",
		right: leaking, grows: true, keptBy: "__main__.recorder",
	},
	{
		name: "lru_forever.py", truth: "leak: an lru_cache without a limit",
		right: leaking, grows: true, keptBy: "lru-cache features",
	},
	{
		name: "hook_outputs.py", truth: "leak: a forward hook",
		right: leaking, grows: true, keptBy: "__main__.seen",
	},
	{name: "closure_cache.py", truth: "leak: a list in a closure", right: leaking, grows: true},
	{
		name: "spikes_leak.py", truth: "leak: slow, under validations",
		right: leaking, grows: true, rate: 24, keptBy: "__main__.metrics",
	},
	{
		name: "worker_leak.py", truth: "leak: in DataLoader workers",
		right: leaking, grows: true, below: true,
	},
	{
		name: "images_kept.py", truth: "leak: a list of images",
		right: leaking, grows: true, keptBy: "__main__.thumbnails",
	},
	{
		name: "arrays_appended.py", truth: "leak: a list of arrays",
		right: leaking, grows: true, keptBy: "__main__.monitor",
	},
	{
		name: "wrapped.py", truth: "leak: a dict, below bash -c",
		right: leaking, grows: true, below: true, keptBy: "__main__.answers",
	},
	{name: "garbage.py", truth: "leak: cycles, gc.disable()", right: leaking, grows: true},
	{name: "shm_files.py", truth: "leak: files in RAM", right: leaking, rate: 60},
	{
		name: "extension_leak.py", truth: "leak: lost by a C extension",
		right: losing, grows: true, function: "session_open",
	},
	{name: "lost_reference.py", truth: "leak: a lost reference", right: losing, grows: true},
	{
		name: "server_leak.cc", truth: "leak: lost by a server",
		right: losing, grows: true, function: "handle",
	},
	{name: "lru_limited.py", truth: "fills up: lru_cache(maxsize)", right: filling, grows: true},
	{name: "replay_deque.py", truth: "fills up: deque(maxlen)", right: filling, grows: true},
	{name: "full_queue.py", truth: "fills up: queue.Queue(maxsize)", right: filling, grows: true},
	{name: "preallocated.py", truth: "fills up: an array", right: filling, grows: true},
	{
		name: "fragmentation.py", truth: "fragmentation",
		right: []conclusion{isFragmented}, grows: true,
	},
	{
		name: "levels_off.py", truth: "levels off: a cache of 6,000 keys",
		right: []conclusion{isSaturating},
	},
	{name: "warm_up.py", truth: "flat after a warm-up", right: steady},
	{name: "spikes_flat.py", truth: "flat under validations", right: spiky},
	{name: "sawtooth.py", truth: "flat: garbage comes and goes", right: spiky},
	{name: "mapped_file.py", truth: "no leak: pages of a mapped file", right: steady},
	{name: "page_cache.py", truth: "no leak: a file is written", right: steady},
	{name: "compile_workers.py", truth: "flat, with 20 workers", right: steady},
	{name: "ranks_flat.py", truth: "flat: three ranks", right: steady},
	{name: "server_flat.py", truth: "flat: a server", right: steady},
	{name: "thread_arenas.c", truth: "flat: twelve arenas", right: spiky},
}

// jobTasks returns the jobs.
func jobTasks(c *campaign) (tasks []task) {
	for _, j := range jobs {
		tasks = append(tasks, task{
			Row: Row{
				Name:   strings.TrimSuffix(j.name, filepath.Ext(j.name)),
				Source: "`testdata/truth/jobs/" + j.name + "`", Truth: j.truth,
				Lost: lostOf(j),
			},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.measureJob(ctx, j, r)
			},
		})
	}
	return c.few(tasks, 4)
}

// title is the name of a job.
func (j job) title() string { return strings.TrimSuffix(j.name, filepath.Ext(j.name)) }

// lostOf is 1 for a job whose objects nothing refers to.
func lostOf(j job) int {
	if slices.Contains(j.right, isLost) {
		return 1
	}
	return 0
}

// measureJob starts a job on this system, and traces it.
func (c *campaign) measureJob(ctx context.Context, j job, r *Row) error {
	files, err := os.MkdirTemp("/dev/shm", "allocscope-truth-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(files)

	argv, err := c.commandOf(ctx, j, files)
	if err != nil {
		return err
	}

	place := ""
	if j.grows {
		if place, err = c.named(j); err != nil {
			return err
		}
	}
	return c.traceJob(ctx, j, argv, place, r)
}

// traceJob starts and traces a program, and compares the answer with the truth and with the kernel.
func (c *campaign) traceJob(
	ctx context.Context, j job, argv []string, place string, r *Row,
) error {
	p, stop, err := start(ctx, argv)
	if err != nil {
		return err
	}

	defer stop()

	traced := p
	if j.below {
		traced = parentOf(p)
	}

	s, slope, err := c.traceTree(ctx, traced, p, fileName(r.Name), r)
	if err != nil {
		return err
	}

	if j.rate > 0 {
		slope = j.rate * mib
	}

	r.judgeJob(j, answerOf(s), slope, place)
	return nil
}

// commandOf is the command that starts a job, with a folder in RAM for its files.
func (c *campaign) commandOf(ctx context.Context, j job, files string) ([]string, error) {
	folder := filepath.Join(c.testdata, "truth", "jobs")
	source, program := filepath.Join(folder, j.name), filepath.Join(files, j.title())
	compile := func(compiler string, arguments ...string) error {
		arguments = append(arguments, "-O1", "-g", "-pthread")
		output, err := exec.CommandContext(ctx, compiler, arguments...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", compiler, err, lastLine(string(output)))
		}
		return nil
	}

	switch interpreter := "/usr/bin/python3"; j.name {
	case "wrapped.py":
		return []string{"bash", "-c", interpreter + " " + source + "; exit"}, nil
	case "extension_leak.py":
		library := filepath.Join(files, "extension.so")
		return []string{interpreter, source, library},
			compile("gcc", filepath.Join(folder, "extension.c"), "-shared", "-fPIC", "-o", library)
	case "thread_arenas.c":
		return []string{program, ""}, compile("gcc", source, "-o", program)
	case "server_leak.cc":
		return []string{program, ""}, compile("g++", source, "-o", program)
	default:
		return []string{interpreter, source, files}, nil
	}
}

// named is the line of a job that allocates the growth, or its function, as the answer names it.
func (c *campaign) named(j job) (string, error) {
	return c.namedIn("jobs", j)
}

// namedIn is named of a program in a folder of testdata/truth.
func (c *campaign) namedIn(folder string, j job) (string, error) {
	if j.function != "" {
		return j.function, nil
	}
	return harness.Line(filepath.Join(c.testdata, "truth", folder, j.name),
		func(line string) bool { return strings.Contains(line, " NAMED") })
}

// concluded is the conclusion of an answer.
func (a answer) concluded() conclusion {
	switch {
	case a.proven():
		return isLost
	case a.reason == verdict.ReasonFragmentation:
		return isFragmented
	}
	return conclusion(a.class)
}

// judgeJob compares an answer with the truth. An answer that decides nothing is never wrong about
// the class, unless it suspects a leak of a program that does not grow.
func (r *Row) judgeJob(j job, a answer, slope float64, place string) {
	concluded := a.concluded()
	if concluded == isLost {
		r.Proven, r.False = r.Lost, 1-r.Lost
	}

	said := []string{a.text}
	if a.keptBy != "" {
		said = append(said, "kept by "+a.keptBy)
	}

	isNamed := place == "" || concluded == isFragmented || strings.Contains(a.lines, place)
	if !isNamed {
		said = append(said, "the line is not named")
	}

	isRate := true
	if j.grows || j.rate > 0 {
		factor := a.rate / slope
		said = append(said, fmt.Sprintf("%.2f times the rate", factor))
		isRate = factor > 1-maxRateError && factor < 1+maxRateError
	}
	r.Said = strings.Join(said, ", ")

	isOpen := slices.Contains(open, concluded)
	isAlarm := a.class == verdict.ClassSuspected && slices.Contains(j.right, isFlat)
	isMiskept := a.keptBy != "" && j.keptBy != "" && a.keptBy != j.keptBy
	isMeasured := a.class != verdict.ClassTooShort
	switch {
	case !isOpen && !slices.Contains(j.right, concluded), isAlarm, isMiskept, isMeasured && !isRate:
		r.Outcome = Wrong
	case isOpen, !isNamed:
		r.Outcome = Undecided
	default:
		r.Outcome = Right
	}
}

// parentOf returns the parent of a process; 0 if it has ended.
func parentOf(pid int) (parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	var state string
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}
