package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
)

// Who holds a block, besides the name of a static variable.
const (
	nobody   = "lost"
	onStack  = "stack" // of a thread
	inTLS    = "TLS"   // of a thread, or pthread_setspecific
	notKnown = "not known"
	unknown  = "?" // it depends on the contents of a dead stack frame
)

// A checked is a test program of a leak checker. Where it would end it waits, by testdata/truth/held.c.
type checked struct {
	name   string
	file   string // below the folder of the sources
	flags  string // of the compiler
	args   string
	dso    string // flags of a library, of the same file; empty: there is none
	holder []string
}

const (
	lsan     = "lsan/compiler-rt/test/lsan/TestCases/"
	memcheck = "valgrind/memcheck/tests/"
)

// checkedPrograms have a truth for each block, in the order of allocation: of LeakSanitizer's by
// the options of its RUN lines, of Valgrind's by comments in the sources and by .stderr.exp. Blocks
// after the last one of holder have the last one's.
var checkedPrograms = []checked{
	{
		name: "use_globals_initialized", file: lsan + "use_globals_initialized.cpp",
		holder: []string{"data_var"},
	},
	{name: "leak-cases", file: memcheck + "leak-cases.c", holder: []string{
		"p1", "p2", "p2", nobody, nobody, nobody, "p5", "p6", "p6", "p7", "p7", "p8", "p8", nobody,
		nobody,
	}},
	{name: "leak-tree", file: memcheck + "leak-tree.c", holder: []string{
		"t", "t", nobody, nobody, "t", nobody, nobody,
	}},
	{
		name: "use_stacks_threaded", file: lsan + "use_stacks_threaded.cpp",
		holder: []string{onStack},
	},
	{name: "pointer_to_self", file: lsan + "pointer_to_self.cpp", holder: []string{nobody}},
	{name: "use_tls_static", file: lsan + "Linux/use_tls_static.cpp", holder: []string{inTLS}},

	{
		name: "use_globals_uninitialized", file: lsan + "use_globals_uninitialized.cpp",
		holder: []string{"bss_var"},
	},
	{
		name: "use_globals_unused", file: lsan + "use_globals_unused.cpp", dso: "-DTEST_LIB",
		holder: []string{"g"},
	},
	{name: "user_pointer", file: lsan + "user_pointer.cpp", holder: []string{"glob"}},
	{name: "use_stacks", file: lsan + "use_stacks.cpp", holder: []string{onStack}},
	{name: "use_after_return", file: lsan + "use_after_return.cpp", holder: []string{onStack}},
	{name: "use_registers", file: lsan + "use_registers.cpp", holder: []string{onStack}},
	{
		name: "use_registers_extra", file: lsan + "use_registers_extra.cpp",
		holder: []string{onStack},
	},
	{
		name: "use_tls_dynamic", file: lsan + "Linux/use_tls_dynamic.cpp", dso: "-DBUILD_DSO",
		holder: []string{inTLS},
	},
	{
		name: "use_tls_pthread_specific_static",
		file: lsan + "Linux/use_tls_pthread_specific_static.cpp", holder: []string{inTLS},
	},
	{
		name: "use_tls_pthread_specific_dynamic",
		file: lsan + "Linux/use_tls_pthread_specific_dynamic.cpp", holder: []string{inTLS},
	},
	{
		name: "many_tls_keys_pthread", file: lsan + "many_tls_keys_pthread.cpp",
		holder: []string{inTLS},
	},
	{
		name: "many_tls_keys_thread", file: lsan + "many_tls_keys_thread.cpp",
		holder: []string{inTLS},
	},

	{
		name: "stale_stack_leak", file: lsan + "stale_stack_leak.cpp", flags: "-O1 -DKEEP_STACK",
		holder: []string{nobody},
	},
	{
		name: "large_allocation_leak", file: lsan + "large_allocation_leak.cpp",
		holder: []string{nobody},
	},
	{name: "leak_check_at_exit", file: lsan + "leak_check_at_exit.cpp", holder: []string{nobody}},
	{
		name: "recoverable_leak_check", file: lsan + "recoverable_leak_check.cpp",
		flags: "-DNDEBUG", holder: []string{nobody},
	},
	{name: "fork_and_leak", file: lsan + "Linux/fork_and_leak.cpp", holder: []string{nobody}},
	{name: "malloc_zero", file: lsan + "malloc_zero.c", holder: []string{nobody}},
	{name: "disabler", file: lsan + "disabler.c", holder: []string{unknown, unknown, nobody}},
	{
		name: "swapcontext", file: lsan + "swapcontext.cpp", args: "foo",
		holder: []string{unknown, nobody},
	},

	{name: "leak-cycle", file: memcheck + "leak-cycle.c", holder: []string{nobody}},
	{
		name: "leak-delta", file: memcheck + "leak-delta.c",
		holder: []string{"b10", "b21", nobody, "b32_33"},
	},
	{
		name: "leak-pool", file: memcheck + "leak-pool.c", args: "3",
		holder: []string{nobody},
	},
	{
		name: "leak_cpp_interior", file: memcheck + "leak_cpp_interior.cpp",
		flags: "-DPAUSE_AT_DELETE -Wl,--wrap=_ZdaPvm", holder: []string{
			"ptr", "ptr64", "ptr2", "ptrBCe", "ptrACe", "ptrBC", "ptrAC",
		},
	},
	{name: "trivialleak", file: memcheck + "trivialleak.c", holder: []string{nobody}},
	{name: "nanoleak2", file: memcheck + "nanoleak2.c", holder: []string{"a"}},
}

// maxBlocks bounds the blocks of a program that are searched for. The first and last ones may still
// be in dead registers and stack frames.
const maxBlocks = 24

// blockTasks returns the programs.
func blockTasks(c *campaign) (tasks []task) {
	for _, p := range checkedPrograms {
		from := "Valgrind 3.19, memcheck/tests"
		if strings.HasPrefix(p.file, lsan) {
			from = "LLVM 19, compiler-rt/test/lsan"
		}
		tasks = append(tasks, task{
			Row: Row{Name: p.name, Source: from},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.checkBlocks(ctx, p, r)
			},
		})
	}
	return c.few(tasks, 6)
}

// checkBlocks runs a program, and searches for who holds each of its blocks.
func (c *campaign) checkBlocks(ctx context.Context, p checked, r *Row) error {
	program, err := c.build(ctx, p)
	if err != nil {
		return err
	}

	blocks, pid, stop, err := startChecked(ctx, program, strings.Fields(p.args))
	if err != nil {
		return err
	}

	defer stop()

	target, err := process.Open(pid)
	if err != nil {
		return err
	}

	defer target.Close()
	heap, err := objects.Open(target)
	if err != nil {
		return err
	}

	defer heap.Close()

	var chosen []uint64
	var holders []string
	for i, block := range blocks {
		holder := p.holder[min(i, len(p.holder)-1)]
		if holder != unknown && len(chosen) < maxBlocks {
			chosen, holders = append(chosen, block), append(holders, holder)
		}
	}
	if len(chosen) == 0 {
		return errors.New("it has allocated nothing")
	}

	own := process.OwnCPUTime()
	answers, err := answersOf(ctx, heap, chosen)
	r.CPU = (process.OwnCPUTime() - own).Seconds()
	if err != nil {
		return err
	}

	r.judgeBlocks(answers, holders)
	return nil
}

// answersOf searches for who holds each block. Where that is not known it sweeps the memory for
// references to the block.
func answersOf(ctx context.Context, heap *objects.Heap, blocks []uint64) ([]string, error) {
	var suspects, unknown []objects.Suspect
	for _, block := range blocks {
		suspects = append(suspects, objects.Suspect{Objects: []uint64{block}})
	}
	searches, err := heap.Search(ctx, suspects, searchLimit)
	if err != nil {
		return nil, err
	}

	var answers []string
	var indices []int // of unknown, in answers
	for i, s := range searches {
		answers = append(answers, holderOf(s))
		if len(s.Paths) == 0 {
			unknown, indices = append(unknown, suspects[i]), append(indices, i)
		}
	}
	if len(unknown) == 0 {
		return answers, nil
	}

	sweeps, err := heap.Sweep(ctx, unknown, searchLimit)
	for k, s := range sweeps {
		switch {
		case s.Sweep.Premise != keeper.PremiseHolds:
			answers[indices[k]] = notKnown + " (" + string(s.Sweep.Premise) + ")"
		case len(s.Sweep.Lost) > 0:
			answers[indices[k]] = nobody
		}
	}
	return answers, err
}

const searchLimit = 20 * time.Second // of CPU

// judgeBlocks compares the answers about the blocks of a program with the truth. The worst one
// decides.
func (r *Row) judgeBlocks(answers, holders []string) {
	truth, said, counts := newCounts(), newCounts(), make(map[Outcome]int)
	for i, answer := range answers {
		holder := holders[i]
		truth.add(holder)
		said.add(answer)
		outcome := outcomeOf(holder, answer)
		counts[outcome]++
		if r.Blocks++; outcome == Right {
			r.BlocksRight++
		}
		switch {
		case holder == nobody && answer == nobody:
			r.Lost, r.Proven = r.Lost+1, r.Proven+1
		case holder == nobody:
			r.Lost++
		case answer == nobody:
			r.False++
		}
	}

	r.Truth, r.Said = truth.text(), said.text()
	switch {
	case counts[Wrong] > 0:
		r.Outcome = Wrong
	case counts[Undecided] > 0:
		r.Outcome = Undecided
	default:
		r.Outcome = Right
	}
}

// holderOf is the answer of a search about a block.
func holderOf(s keeper.Search) string {
	if len(s.Paths) == 0 {
		return notKnown + " (" + string(s.Reason) + ")"
	}

	switch root := s.Paths[0].Root; root.Kind {
	case keeper.RootStatic:
		return root.Name
	case keeper.RootThread:
		return onStack
	default:
		return rootText(root)
	}
}

// outcomeOf compares an answer with the truth. Thread-local variables are beside the stack. A lost
// block may still have its address in a dead word of the stack, which is a reference to anybody who
// looks from outside.
func outcomeOf(holder, answer string) Outcome {
	switch {
	case answer == holder, holder == inTLS && answer == onStack:
		return Right
	case strings.HasPrefix(answer, notKnown), holder == nobody && answer == onStack:
		return Undecided
	default:
		return Wrong
	}
}

// counts are texts and how often each was added.
type counts struct {
	order []string
	of    map[string]int
}

func newCounts() *counts { return &counts{of: make(map[string]int)} }

func (c *counts) add(text string) {
	if c.of[text]++; c.of[text] == 1 {
		c.order = append(c.order, text)
	}
}

func (c *counts) text() string {
	var parts []string
	for _, text := range c.order {
		if n := c.of[text]; n > 1 {
			text = fmt.Sprintf("%d %s", n, text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// build compiles a program, with its library where it has one.
func (c *campaign) build(ctx context.Context, p checked) (program string, err error) {
	program = filepath.Join(c.output, p.name)
	source := filepath.Join(c.sources, p.file)
	held := filepath.Join(c.testdata, "truth", "held.c")
	compiler := "g++"
	if strings.HasSuffix(p.file, ".c") {
		compiler = "gcc"
	}

	flags := append(strings.Fields("-g -w -pthread"), strings.Fields(p.flags)...)
	if err := compile(ctx, "gcc", append(flags, "-c", held, "-o", program+".held.o")...); err != nil {
		return "", err
	}

	include := filepath.Join(c.sources, "lsan/compiler-rt/test")
	arguments := append(flags, "-I", include, "-I", filepath.Join(c.sources, "valgrind/include"), source, program+".held.o", "-o", program)
	if p.dso != "" {
		err := compile(ctx, compiler, append(flags, "-I", include, p.dso, "-fPIC", "-shared", source,
			"-o", program+"-so.so")...)
		if err != nil {
			return "", err
		}
		arguments = append(arguments, program+"-so.so", "-ldl")
	}

	for _, name := range []string{"malloc", "calloc", "_Znwm", "_Znam", "strdup", "_exit", "main"} {
		arguments = append(arguments, "-Wl,--wrap="+name)
	}
	return program, compile(ctx, compiler, arguments...)
}

// compile runs a compiler. Its error has the last line of its output.
func compile(ctx context.Context, compiler string, arguments ...string) error {
	output, err := exec.CommandContext(ctx, compiler, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", compiler, err, lastLine(string(output)))
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// startChecked starts a program, and returns the blocks that it has allocated once it waits.
func startChecked(
	ctx context.Context, program string, arguments []string,
) (blocks []uint64, pid int, stop func(), err error) {
	command := exec.CommandContext(ctx, program, arguments...)
	harness.OwnGroup(command)
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, 0, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, 0, nil, err
	}
	stop = func() {
		_ = command.Cancel()
		_ = command.Wait() // it was killed
		_ = os.Remove(program)
	}

	late := time.AfterFunc(readyTimeout, func() { _ = command.Cancel() })
	defer late.Stop()

	for lines := bufio.NewScanner(output); lines.Scan(); {
		var number int
		var block uint64
		if _, err := fmt.Sscanf(lines.Text(), "block %d %v", &number, &block); err == nil {
			blocks = append(blocks, block)
		} else if _, err := fmt.Sscanf(lines.Text(), "ready %d", &pid); err == nil {
			return blocks, pid, stop, nil
		}
	}

	stop()
	return nil, 0, nil, fmt.Errorf("%s has ended before it was ready", filepath.Base(program))
}
