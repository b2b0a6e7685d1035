// Command cuda traces programs that use the real caching allocator of PyTorch for CUDA, on stand-ins
// for NVIDIA's libraries. While a program holds still, it compares the segments and blocks that allocscope
// reads from outside with PyTorch's own snapshot, and the sums with torch.cuda.memory_stats(). Then it
// compares the printed result with the truth of the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

func main() { harness.Main(run) }

func run(ctx context.Context) error {
	allocscope := flag.String("allocscope", "bin/allocscope", "program to test")
	root := flag.String("folder", "", "folder that testdata/gpu/debian.sh prints")
	enter := flag.String("enter", "testdata/peers/inside.sh", "script that runs a command in it")
	names := flag.String("cases", "", "names of cases; empty: all")
	texts := flag.Bool("texts", false, "print what each trace says, not only where a case fails")
	work := flag.String("work", "", "folder to work in")
	flag.Parse()

	chosen, err := harness.Choose(cases, *names, func(c example) string { return c.name })
	if err != nil {
		return err
	}
	debian := harness.Debian{Root: *root, Enter: *enter}
	if err := debian.Prepare("testdata/gpu/cases"); err != nil {
		return err
	}
	defer os.RemoveAll(debian.Outer())

	failed := 0
	fmt.Printf("%-14s %8s %8s %9s %7s  %s\n", "case", "segments", "blocks", "read", "s", "result")
	for _, c := range chosen {
		began := time.Now()
		r := c.check(ctx, &debian, *allocscope, filepath.Join(*work, c.name))
		result := "ok"
		if len(r.faults) > 0 {
			result = "FAILED"
			failed++
		}
		fmt.Printf("%-14s %8d %8d %6.1f ms %7.0f  %s\n", c.name, r.segments, r.blocks,
			float64(r.read.Microseconds())/1e3, time.Since(began).Seconds(), result)
		for _, fault := range r.faults {
			fmt.Println("    " + fault)
		}
		if *texts || len(r.faults) > 0 {
			fmt.Println("\n        " + strings.ReplaceAll(r.text, "\n", "\n        ") + "\n")
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases failed", failed, len(chosen))
	}
	return ctx.Err()
}
