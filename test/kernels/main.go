// Command kernels runs the BPF tests of this project on other kernels. Each boots in a machine that
// qemu emulates, one after the other; the script `run` beside it has the details. As the first
// process of such a machine, the same program runs the tests.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/test/harness"
)

func main() {
	if os.Getpid() == 1 {
		beInit()
		return
	}

	var s settings
	names := flag.Bool("names", false,
		"print the name of each kernel and that of its image, in the order of turns, and exit")
	flag.StringVar(&s.programs, "programs", "",
		"folder with a folder for each architecture, with tracer.test, bpf.test, allocscope and this "+
			"program, linked statically")
	flag.StringVar(&s.targets, "targets", "",
		"folder with the programs that the tests trace, which tracertest.Build fills")
	flag.StringVar(&s.arm64Root, "arm64-root", "",
		"folder with Python and libraries for arm64, as `fetch` makes it")
	flag.StringVar(&s.testdata, "testdata", "", "the project's testdata folder")
	flag.StringVar(&s.logs, "logs", "", "folder for the logs")
	flag.BoolVar(&s.few, "few", false, "run few tests, those that depend most on the kernel")
	flag.StringVar(&s.pattern, "run", "",
		"pattern of the tests of package tracer that run instead of those of the plan")
	flag.DurationVar(&s.limit, "limit", 2*time.Hour, "time for one kernel")
	flag.Parse()

	if *names {
		for _, e := range expectations {
			fmt.Println(e.name, cmp.Or(e.image, e.name))
		}
		return
	}

	harness.Main(func(ctx context.Context) error { return runAll(ctx, s, flag.Args()) })
}

// settings are the same for all kernels. Folders are absolute, and have the same paths in the
// machines.
type settings struct {
	programs, targets, testdata, logs, arm64Root string
	few                                          bool          // tests of fewTests alone
	pattern                                      string        // of tests that run instead; empty: none
	limit                                        time.Duration // for one kernel
}

// program is the path of a program for an architecture.
func (s settings) program(architecture, name string) string {
	return filepath.Join(s.programs, architecture, name)
}

// runAll runs the tests on each kernel, given as NAME=IMAGE, and prints a line for each.
func runAll(ctx context.Context, s settings, kernels []string) error {
	failed := 0
	for _, kernel := range kernels {
		name, image, _ := strings.Cut(kernel, "=")
		expected, err := expectationOf(name)
		if err != nil {
			return err
		}
		p, err := planFor(s, expected)
		if err != nil {
			return err
		}

		began, used := time.Now(), cpuTime()
		log := filepath.Join(s.logs, name+".log")
		r := check(log, p, runOn(ctx, s, image, p))
		if len(r.faults) > 0 {
			failed++
		}
		fmt.Print(r.report(p, time.Since(began), cpuTime()-used, log))

		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d kernels failed", failed, len(kernels))
	}
	return nil
}

// cpuTime is the CPU time of this process and its ended children.
func cpuTime() time.Duration {
	var nanoseconds int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if unix.Getrusage(who, &usage) == nil {
			nanoseconds += usage.Utime.Nano() + usage.Stime.Nano()
		}
	}
	return time.Duration(nanoseconds)
}

// runOn runs the jobs of a plan, on this machine or in one that boots image. NAME.log gets their
// output, and NAME.console the kernel's messages.
func runOn(ctx context.Context, s settings, image string, p plan) error {
	log := filepath.Join(s.logs, p.name+".log")
	if p.name == thisMachine {
		file, err := os.Create(log)
		if err != nil {
			return err
		}
		p.run(file)
		return file.Close()
	}

	root, err := makeRoot(s, p)
	if err != nil {
		return fmt.Errorf("make root file system: %w", err)
	}
	defer os.Remove(root)

	return boot(ctx, machine{
		architecture: architectures[p.architecture],
		image:        image, parameters: p.parameters, root: root, limit: s.limit,
		log: log, console: filepath.Join(s.logs, p.name+".console"),
	})
}
