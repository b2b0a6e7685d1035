// Command kernels runs the BPF tests of this project on other kernels, one after the other, each in a machine that qemu
// emulates; see the script `run` beside it. As the first process of such a machine it runs the tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		beInit()
		return
	}
	var s setting
	flag.StringVar(&s.programs, "programs", "", "folder with tracer.test, bpf.test and allocscope, linked statically")
	flag.StringVar(&s.targets, "targets", "", "folder with the programs that the tests trace, as tracertest.Build has left them")
	flag.StringVar(&s.testdata, "testdata", "", "the project's testdata folder")
	flag.StringVar(&s.logs, "logs", "", "folder for the logs")
	flag.DurationVar(&s.limit, "limit", 5*time.Minute, "time for one kernel")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := runAll(ctx, s, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// A setting is what is the same for all kernels. Folders are absolute: they have the same paths in the machines.
type setting struct {
	programs, targets, testdata, logs string
	limit                             time.Duration
}

// runAll runs the tests on each of the kernels, given as NAME=IMAGE, and prints a line for each.
func runAll(ctx context.Context, s setting, kernels []string) (failed int, err error) {
	for _, kernel := range kernels {
		name, image, _ := strings.Cut(kernel, "=")
		expected, ok := expectations[name]
		if !ok {
			return failed, fmt.Errorf("kernel %q: plan.go does not say what to expect of it", name)
		}
		p, err := planFor(s, expected)
		if err != nil {
			return failed, err
		}
		began := time.Now()
		log := filepath.Join(s.logs, name+".log")
		v := judge(log, p, runOn(ctx, s, name, image, p))
		if len(v.faults) > 0 {
			failed++
		}
		fmt.Print(v.report(name, p, time.Since(began), log))
		if ctx.Err() != nil {
			return failed, ctx.Err()
		}
	}
	return failed, nil
}

// runOn does what is planned, on this machine or in one that boots image. Its words are in NAME.log, the kernel's messages in
// NAME.console.
func runOn(ctx context.Context, s setting, name, image string, p plan) error {
	log := filepath.Join(s.logs, name+".log")
	if name == thisMachine {
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
	return boot(ctx, machine{image: image, root: root, log: log, console: filepath.Join(s.logs, name+".console"), limit: s.limit})
}
