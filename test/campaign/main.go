// Command campaign traces a real trainer repeatedly, or runs a command or the agent beside it, and
// each time breaks something: a process of allocscope, the target, the disk, the memory, a server.
//
// After each round it checks that the trainer has the same result as untraced, that the command has
// printed and ended as it does without allocscope, that no probe, process and file of ours is left,
// and that the folder has the promised files, or that the error names the lost ones. See the script
// `run` beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

// A campaign has the settings of all rounds.
type campaign struct {
	allocscope string
	testdata   string
	programs   string // folder of compiled programs
	work       string // folder that is removed at the end
	random     *rand.Rand
	trainer    *trainer // nil: none runs
}

func main() {
	var c campaign
	flag.StringVar(&c.allocscope, "allocscope", "bin/allocscope", "the program")
	flag.StringVar(&c.testdata, "testdata", "testdata", "the programs that are traced")
	flag.StringVar(&c.programs, "programs", "", "folder with pair, storms and two sudo, compiled")
	duration := flag.Duration("duration", 30*time.Minute, "after it no round begins")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all that is random")
	names := flag.String("faults", "",
		"which, with commas between them; run and agent for all of their kind (default all)")
	expect := flag.Bool("expect-failure", false, "a defect is injected: the campaign has to find it")
	flag.Parse()
	c.random = rand.New(rand.NewPCG(*seed, 0))

	fmt.Printf("seed %d\n", *seed)
	if err := adoptOrphans(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	harness.Main(func(ctx context.Context) error { return c.run(ctx, *duration, *names, *expect) })
}

// run runs rounds, each fault once before any comes again, and prints a table of them.
func (c *campaign) run(ctx context.Context, d time.Duration, names string, expect bool) error {
	var err error
	if c.work, err = os.MkdirTemp("", "allocscope-campaign-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.work)
	if err := os.Chmod(c.work, 0o755); err != nil { // a fault has another user run allocscope
		return err
	}
	defer func() { c.trainer.end() }()

	chosen := slices.Clone(faults)
	if names != "" {
		wanted := strings.Split(names, ",")
		chosen = slices.DeleteFunc(chosen, func(f fault) bool {
			subject, _, _ := strings.Cut(f.name, ":")
			return !slices.Contains(wanted, f.name) && !slices.Contains(wanted, subject)
		})
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no fault is named %q", names)
	}

	rounds, failed := make(map[string]int), make(map[string]int)
	until, all, bad := time.Now().Add(d), 0, 0
	for all == 0 || time.Now().Before(until) && ctx.Err() == nil && (bad == 0 || !expect) {
		if all%len(chosen) == 0 {
			c.random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		}
		f := chosen[all%len(chosen)]
		all++
		rounds[f.name]++
		if err := c.round(ctx, f, all); err != nil && ctx.Err() == nil {
			bad++
			failed[f.name]++
			fmt.Printf("round %d, %s: %v\n", all, f.name, err)
		}
	}

	fmt.Print("\n| fault | rounds | failed |\n|---|---|---|\n")
	for _, f := range faults {
		if rounds[f.name] > 0 {
			fmt.Printf("| %s | %d | %d |\n", f.name, rounds[f.name], failed[f.name])
		}
	}
	fmt.Printf("| all | %d | %d |\n", all, bad)
	switch {
	case expect && bad == 0:
		return errors.New("the injected defect was not found")
	case !expect && bad > 0:
		return fmt.Errorf("%d of %d rounds failed", bad, all)
	}
	return nil
}
