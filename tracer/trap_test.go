//go:build amd64

package tracer_test

import (
	"debug/elf"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// trap.c allocates in a signal handler before every instruction that it steps through, and counts.
func TestStacksGoThroughEveryInstructionThatASignalCanInterrupt(t *testing.T) {
	for _, c := range []struct {
		mode, in string
		places   int // at which the handler has interrupted that code, at least
	}{
		{"plt", ".plt", 5}, // three of the function's entry, two of the first entry
		{"vdso", "[vdso]", 10},
	} {
		t.Run("of the "+c.mode, func(t *testing.T) {
			program := tracertest.Build(t, "trap.c", "-Wl,-z,lazy")
			got, want := trap(t, program, c.mode)
			plt := section(t, program, ".plt")
			var right float64
			places := make(map[uint64]bool)
			for _, h := range got.Holdings {
				at := index(h.Stack, "allocate")
				if at < 0 {
					continue
				}
				if !isWhole(h.Stack, "step_"+c.mode) && !isInResolver(h.Stack) {
					t.Errorf("ends with %q:\n%s", h.Stack.Truncated, write(native(h.Stack.Frames)))
					continue
				}
				right += h.AllocObjects
				f := h.Stack.Frames[at+2] // behind the signal's return code
				offset := f.Address - f.Module.Start + f.Module.Offset
				if f.Module.Path == c.in || f.Module.Path == program && offset-plt.Offset < plt.Size && c.in == plt.Name {
					places[f.Address] = true
				}
			}
			if right != want {
				t.Errorf("%.0f stacks are right, want %.0f", right, want)
			}
			if len(places) < c.places {
				t.Errorf("%d instructions of %s were interrupted, want %d at least", len(places), c.in, c.places)
			}
		})
	}
}

func TestStacksGoThroughGeneratedCodeThatKeepsAFramePointer(t *testing.T) {
	for mode, truncated := range map[string]string{"jit": "", "jit-bare": "no frame pointer"} {
		t.Run(mode, func(t *testing.T) {
			got, _ := trap(t, tracertest.Build(t, "trap.c", "-Wl,-z,lazy"), mode)
			seen := false
			for _, h := range got.Holdings {
				at := index(h.Stack, "allocate")
				if at < 0 {
					continue
				}
				seen = true
				frames := h.Stack.Frames
				if len(frames) < at+2 || frames[at+1].Module.Path != "[anonymous]" || h.Stack.Truncated != truncated {
					t.Fatalf("ends with %q, want %q:\n%s", h.Stack.Truncated, truncated, write(native(frames)))
				}
				if truncated == "" && (!isWhole(h.Stack, "call_generated") || !strings.HasSuffix(frames[at+2].Function, marked)) {
					t.Errorf("is not whole, or %s is not marked:\n%s", frames[at+2].Function, write(native(frames)))
				}
			}
			if !seen {
				t.Error("the allocation was not seen")
			}
		})
	}
}

// trap runs trap.c, and gives what was seen and the number of allocations that it made.
func trap(t *testing.T, program, mode string) (*growth.Snapshot, float64) {
	t.Helper()
	target := tracertest.Start(t, program, mode)
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, NativeFrames: true})
	target.Say("go")
	truth := target.Await("done")
	n, err := strconv.ParseFloat(strings.Join(truth, " "), 64)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot(t, s), n
}

// marked are frames found by what generated code promises, not by a table.
const marked = " [by frame pointer]"

// index of the frame of a function; -1 if there is none.
func index(stack *growth.Stack, function string) int {
	return slices.IndexFunc(stack.Frames, func(f growth.Frame) bool { return strings.TrimSuffix(f.Function, marked) == function })
}

// isWhole: main called the function, and _start is where the thread began.
func isWhole(stack *growth.Stack, function string) bool {
	at := index(stack, function)
	return stack.Truncated == "" && at >= 0 && index(stack, "main") == at+1 && index(stack, "_start") == len(stack.Frames)-1
}

// isInResolver: below the dynamic linker's code that binds functions on their first call, whose frame hangs on a register
// that is not followed up a stack (rbx).
func isInResolver(stack *growth.Stack) bool {
	return slices.ContainsFunc(stack.Frames, func(f growth.Frame) bool { return strings.HasPrefix(f.Function, "_dl_runtime_resolve") })
}

func section(t *testing.T, program, name string) *elf.Section {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return file.Section(name)
}
