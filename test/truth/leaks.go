package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// A leak is a program of testdata/truth that makes a call which leaks in the versions that are
// shipped. Its file has the line marked NAMED that makes it.
type leak struct {
	name   string
	source string
	// keptBy is the variable that keeps the objects, as Python code; empty: nothing refers to them.
	keptBy string
	// shipped are interpreters that have the leak, by the names that testdata/interpreters.sh
	// gives them, and fixed the ones that do not.
	shipped, fixed []string
}

const (
	system = "system"         // Debian 12
	trixie = "debian-trixie"  // Debian 13
	forky  = "debian-forky"   // Debian 14
	pillow = "Pillow 9.4.0"   // of Debian 12
	python = "CPython 3.11.2" // of Debian 12
)

var leaks = []leak{
	{
		name: "getpixel_int64", source: pillow + ", `_getxy`: Pillow 9487",
		shipped: []string{system},
	},
	{
		name: "syntax_error", source: python + ", `SyntaxError_init`: gh-146250",
		shipped: []string{system, trixie}, fixed: []string{forky},
	},
	{
		name: "getpixel_float32", source: pillow + ", `_getxy`: Pillow 9487",
		shipped: []string{system},
	},
	{
		name: "getpixel_decimal", source: pillow + ", `_getxy`: Pillow 9487",
		shipped: []string{system},
	},
	{
		name: "cms_intent", source: pillow + ", `_imagingcms`",
		shipped: []string{system},
	},
	{
		name: "os_error", source: python + ", `OSError_init`: gh-150988",
		shipped: []string{system}, fixed: []string{forky},
	},
	{
		name: "empty_array", source: python + ", `array_new`: gh-140474",
		shipped: []string{system}, fixed: []string{forky},
	},
	{
		name: "bad_hash", source: python + ", `slot_tp_hash`: gh-140406",
		shipped: []string{system}, fixed: []string{forky},
	},
	{
		name: "pickler_memo", source: python + ", `Pickler_traverse`: bpo-41422",
		shipped: []string{system}, fixed: []string{trixie},
	},
	{
		name: "unpickler_memo", source: python + ", `Unpickler_traverse`: bpo-41422",
		shipped: []string{system}, fixed: []string{trixie},
	},
	{
		name: "bz2_decompressor", source: python + ", `BZ2Decompressor.__init__`: bpo-23224",
		shipped: []string{system}, fixed: []string{trixie},
	},
	{
		name: "bz2_compressor", source: python + ", `BZ2Compressor.__init__`",
		shipped: []string{system}, fixed: []string{trixie},
	},
	{
		name: "buffered_pair", source: python + ", `BufferedRWPair.__init__`",
		shipped: []string{system, forky},
	},
	{
		name: "task_context", source: python + ", `Task.__init__`: gh-126083",
		shipped: []string{system}, fixed: []string{trixie},
	},
	{
		name: "pointer_types", source: python + ", `ctypes.POINTER`: gh-100926",
		keptBy:  "_ctypes._pointer_type_cache",
		shipped: []string{system}, fixed: []string{forky},
	},
}

// versions are the CPythons of the interpreters.
var versions = map[string]string{system: python, trixie: "CPython 3.13", forky: "CPython 3.14"}

// minGrowth is the growth from which on a program grows by the kernel's count.
const (
	minGrowth    = 4 << 20 // bytes a minute
	maxRateError = 0.2
)

// leakTasks returns the leaks on each interpreter, and beside each the call that does not leak.
func leakTasks(c *campaign) (tasks []task) {
	add := func(l leak, interpreter, form string, grows bool) {
		t := task{Row: Row{
			Name: l.name + form, Truth: "flat",
			Source: strings.Replace(l.source, python, versions[interpreter], 1),
		}}
		switch {
		case grows && l.keptBy == "":
			t.Truth, t.Lost = "lost", 1
		case grows:
			t.Truth = "kept by " + l.keptBy
		}
		t.measure = func(ctx context.Context, c *campaign, r *Row) error {
			return c.measureLeak(ctx, l, interpreter, strings.Contains(form, "clean"), r)
		}
		tasks = append(tasks, t)
	}

	for _, l := range leaks {
		for i, interpreter := range l.shipped {
			if i == 0 {
				add(l, interpreter, "", true)
				add(l, interpreter, ", clean", false)
			} else {
				add(l, interpreter, ", "+strings.TrimPrefix(interpreter, "debian-"), true)
			}
		}
		for _, interpreter := range l.fixed {
			add(l, interpreter, ", fixed in "+strings.TrimPrefix(interpreter, "debian-"), false)
		}
	}
	return c.few(tasks, 4)
}

// measureLeak traces a program, and compares the answer with the truth and with the kernel.
func (c *campaign) measureLeak(
	ctx context.Context, l leak, interpreter string, clean bool, r *Row,
) error {
	pid, stop, err := c.startPython(ctx, l.name, interpreter, clean)
	if err != nil {
		return err
	}

	defer stop()

	s, slope, err := c.trace(ctx, pid, fileName(r.Name), r)
	if err != nil {
		return err
	}

	place, err := harness.Line(filepath.Join(c.testdata, "truth", l.name+".py"),
		func(line string) bool { return strings.HasSuffix(line, "# NAMED") })
	if err != nil {
		return err
	}

	if grows := r.Truth != "flat"; grows != (slope > minGrowth) {
		return fmt.Errorf("by the kernel it grows by %.1f MiB a minute", slope/mib)
	}

	r.judgeLeak(answerOf(s), l.keptBy, slope, place)
	return nil
}

// An answer is the result of a trace about a leak.
type answer struct {
	class   verdict.Class
	reason  verdict.Reason
	text    string // the verdict in words
	rate    float64
	keptBy  string // a variable; empty: none is named
	garbage bool
	lines   string // WHO and WHERE
}

func answerOf(s *summary.Summary) answer {
	a := answer{
		class: s.Class, reason: s.WhyCode, text: cmp.Or(s.Text.Verdict, string(s.Class)),
		lines: strings.Join(append(slices.Clone(s.Text.Who), s.Text.Where...), "\n"),
	}

	if s.Rate != nil {
		a.rate = *s.Rate
	}

	if k := s.MainKeeper(); k != nil {
		a.garbage = k.IsGarbage()
		if len(k.Paths) > 0 {
			a.keptBy = rootText(k.Paths[0].Root)
		}
	}
	return a
}

// lost is the reason of a leak whose objects nothing refers to.
const lost verdict.Reason = "lost"

// proven reports whether the answer says that nothing refers to the objects.
func (a answer) proven() bool { return a.class == verdict.ClassLeak && a.reason == lost }

// grows are the verdicts of growth that may be a leak, and flat the ones of memory without a leak.
var (
	grows = []verdict.Class{verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing}
	flat  = []verdict.Class{
		verdict.ClassPlateau, verdict.ClassSpikyPlateau, verdict.ClassSaturating,
	}
)

// judgeLeak compares an answer with the truth.
func (r *Row) judgeLeak(a answer, keptBy string, slope float64, place string) {
	if a.proven() {
		r.Proven, r.False = r.Lost, 1-r.Lost
	}

	said := []string{a.text}
	if a.keptBy != "" {
		said = append(said, "kept by "+a.keptBy)
	}

	if a.garbage {
		said = append(said, "garbage")
	}

	if r.Truth == "flat" {
		r.Said = strings.Join(said, ", ")
		switch {
		case slices.Contains(flat, a.class):
			r.Outcome = Right
		case a.class == verdict.ClassLeak || a.class == verdict.ClassSuspected:
			r.Outcome = Wrong
		default:
			r.Outcome = Undecided
		}
		return
	}

	isNamed := strings.Contains(a.lines, place)
	if !isNamed {
		said = append(said, "the line is not named")
	}

	factor := a.rate / slope
	said = append(said, fmt.Sprintf("%.2f times the rate", factor))
	r.Said = strings.Join(said, ", ")

	isRate := factor > 1-maxRateError && factor < 1+maxRateError
	isMisled := !slices.Contains(grows, a.class) && a.class != verdict.ClassTooShort ||
		a.reason == verdict.ReasonFragmentation || a.reason == verdict.ReasonPageCache
	isMiskept := a.garbage || a.keptBy != keptBy && a.keptBy != "" || a.proven() && keptBy != ""
	isFound := a.proven() || keptBy != "" && a.keptBy == keptBy
	switch {
	case isMisled, isMiskept, slices.Contains(grows, a.class) && !isRate:
		r.Outcome = Wrong
	case isFound && isNamed:
		r.Outcome = Right
	default:
		r.Outcome = Undecided
	}
}

// rootText is a variable as code.
func rootText(root keeper.Root) string {
	name := root.Name
	if root.Owner != "" {
		name = strings.TrimSuffix(root.Owner+"."+name, ".")
	}

	if root.Kind == keeper.RootGlobal || root.Kind == keeper.RootClass {
		return strings.TrimPrefix(root.Module+"."+name, ".")
	}
	return strings.TrimSpace(string(root.Kind) + " " + name)
}

// startPython starts a program of testdata/truth in an interpreter, and waits until it is ready.
func (c *campaign) startPython(
	ctx context.Context, name, interpreter string, clean bool,
) (pid int, stop func(), err error) {
	command, ok := c.pythons[interpreter]
	if !ok {
		return 0, nil, fmt.Errorf("no interpreter %s", interpreter)
	}

	folder := filepath.Join(c.testdata, "truth")
	if filepath.Base(command[0]) == "chroot" {
		inner, err := os.MkdirTemp(filepath.Join(command[1], "tmp"), "allocscope-truth-")
		if err != nil {
			return 0, nil, err
		}
		if err := os.CopyFS(inner, os.DirFS(folder)); err != nil {
			return 0, nil, err
		}
		defer func() {
			if err != nil {
				_ = os.RemoveAll(inner)
			}
		}()
		pid, stop, err = start(ctx, append(slices.Clone(command),
			"/tmp/"+filepath.Base(inner)+"/"+name+".py", form(clean)))
		end := stop
		return pid, func() { end(); _ = os.RemoveAll(inner) }, err
	}
	return start(ctx, append(slices.Clone(command), filepath.Join(folder, name+".py"), form(clean)))
}

func form(clean bool) string {
	if clean {
		return "clean"
	}
	return "leaking"
}

const readyTimeout = 3 * time.Minute

// start starts a program, and waits for the line "ready PID". It must be stopped.
func start(ctx context.Context, argv []string) (pid int, stop func(), err error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	harness.OwnGroup(command)
	output, err := command.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := command.Start(); err != nil {
		return 0, nil, err
	}

	stop = func() {
		_ = command.Cancel()
		_ = command.Wait() // it was killed
	}

	late := time.AfterFunc(readyTimeout, func() { _ = command.Cancel() })
	defer late.Stop()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "ready %d", &pid); err == nil {
			go func() {
				for lines.Scan() { // it must not wait for a reader
				}
			}()
			return pid, stop, nil
		}
	}

	stop()
	return 0, nil, fmt.Errorf("%s has ended before it was ready", filepath.Base(argv[len(argv)-2]))
}

const mib = 1 << 20

// trace traces a process with the defaults. It also returns the growth of RSS by the kernel's count,
// in bytes a minute.
func (c *campaign) trace(
	ctx context.Context, pid int, name string, r *Row,
) (s *summary.Summary, slope float64, err error) {
	return c.traceTree(ctx, pid, pid, name, r)
}

// traceTree is trace of a process, of which another one of its tree grows.
func (c *campaign) traceTree(
	ctx context.Context, pid, grows int, name string, r *Row,
) (s *summary.Summary, slope float64, err error) {
	folder := filepath.Join(c.output, name)
	command := exec.CommandContext(ctx, c.allocscope, "trace", "--pid", fmt.Sprint(pid),
		"--duration", c.duration.String(), "--no-tui", "--output", folder, "--force")
	harness.OwnGroup(command)
	if log, err := os.Create(folder + ".log"); err == nil {
		defer log.Close()
		command.Stdout, command.Stderr = log, log
	}
	if err := command.Start(); err != nil {
		return nil, 0, err
	}

	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	var points []point
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case err = <-done:
			if command.ProcessState != nil {
				r.CPU = (command.ProcessState.UserTime() +
					command.ProcessState.SystemTime()).Seconds()
			}
			if err != nil {
				return nil, 0, fmt.Errorf("the trace ends with: %w", err)
			}
			if s, err = harness.Summary(folder); err != nil {
				return nil, 0, err
			}
			return s, slopeOf(points, s, c.duration), nil
		case <-ticker.C:
			points = append(points, point{time.Now(), float64(meter.RSS(grows))})
		}
	}
}

// A point is the RSS of a process at a time.
type point struct {
	at  time.Time
	rss float64
}

// slopeOf returns the growth between the first and the last point of the segment that a trace has
// judged, in a minute. The pace of a program changes with the load of the machine.
func slopeOf(points []point, s *summary.Summary, duration time.Duration) float64 {
	from, to := s.Started.Add(duration/4), s.Started.Add(duration)
	if s.PlateauFrom != nil {
		from = s.Started.Add(time.Duration(*s.PlateauFrom * float64(time.Second)))
	}

	points = slices.DeleteFunc(points,
		func(p point) bool { return p.at.Before(from) || p.at.After(to) })
	if len(points) < 2 {
		return 0
	}
	first, last := points[0], points[len(points)-1]
	return (last.rss - first.rss) / last.at.Sub(first.at).Minutes()
}

// fileName is the name of a program without spaces.
func fileName(name string) string { return strings.NewReplacer(", ", "-", " ", "-").Replace(name) }

// pythonsOf returns the commands of the interpreters that can be had, by their names.
func pythonsOf(testdata string) (map[string][]string, error) {
	output, err := exec.Command(filepath.Join(testdata, "interpreters.sh")).Output()
	if err != nil {
		return nil, err
	}

	pythons := make(map[string][]string)
	for line := range strings.Lines(string(output)) {
		name, command, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !strings.HasPrefix(command, "missing: ") {
			pythons[name] = strings.Fields(command)
		}
	}
	return pythons, nil
}
