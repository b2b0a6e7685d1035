package tracer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelDeepStacks walks stacks of hundreds of frames. The innermost and the outermost frames must be
// the program's own, and the number of frames between them exact.
func TestKernelDeepStacks(t *testing.T) {
	for _, calls := range []int{100, 500, 1000} {
		t.Run(fmt.Sprintf("native, %d calls", calls), func(t *testing.T) {
			testDeepNative(t, calls)
		})
		t.Run(fmt.Sprintf("Python, %d calls", calls), func(t *testing.T) {
			testDeepPython(t, calls)
		})
	}

	t.Run("more than can be left out", testTooDeep)
}

// deepStack orders allocations, each from the same depth, and returns the only stack of size bytes,
// and the part left out of it.
func deepStack(
	t *testing.T, target *tracertest.Target, size int64,
) (stack *growth.Stack, leftOut uint64, lines []string) {
	t.Helper()
	const orders = 3
	s := open(t, tracer.Options{
		PID: target.PID(), Interval: 1, Sources: []string{"heap"}, NativeFrames: true,
	})
	for range orders {
		lines = target.Do("go")
	}

	for _, h := range snapshot(t, s).Holdings {
		if h.InuseObjects == 0 || h.InuseBytes/int64(h.InuseObjects) != size {
			continue
		}
		if stack != nil || h.InuseObjects != orders {
			t.Fatalf("%v objects at %+v, want one stack with %d", h.InuseObjects, h.Stack, orders)
		}
		stack = h.Stack
	}
	if stack == nil {
		t.Fatal("no stack")
	}

	events := mustLoseNothing(t, s)
	if isShort := !slices.ContainsFunc(stack.Frames, isGap); isShort {
		return stack, events.FramesLeftOut, lines
	}
	if events.StacksShortened != orders || events.FramesLeftOut%orders != 0 {
		t.Errorf("%d stacks without %d frames, want %d stacks", events.StacksShortened,
			events.FramesLeftOut, orders)
	}
	return stack, events.FramesLeftOut / orders, lines
}

func isGap(f growth.Frame) bool { return f.Function == growth.FramesLeftOut }

// mustEndLike checks that got is want but for the middle, which has so many elements, and that at
// least half of the room at either end is in use.
func mustEndLike[T comparable](t *testing.T, leaf, root, want []T, leftOut uint64, words int) {
	t.Helper()
	if len(leaf)+len(root)+int(leftOut) != len(want) {
		t.Fatalf("%d and %d frames without %d, want %d", len(leaf), len(root), leftOut, len(want))
	}
	if !slices.Equal(leaf, want[:len(leaf)]) {
		t.Errorf("innermost frames %v, want %v", leaf, want[:len(leaf)])
	}
	if !slices.Equal(root, want[len(want)-len(root):]) {
		t.Errorf("outermost frames %v, want %v", root, want[len(want)-len(root):])
	}

	least := bpf.HeadWords / words / 2
	if leftOut > 0 && (len(leaf) < least || len(root) < least) {
		t.Errorf("%d and %d frames, want %d each", len(leaf), len(root), least)
	}
}

// split returns the frames before and behind the gap.
func split(frames []growth.Frame) (leaf, root []growth.Frame) {
	if gap := slices.IndexFunc(frames, isGap); gap >= 0 {
		return frames[:gap], frames[gap+1:]
	}
	return frames, nil
}

// buildDeep links libgcc, which glibc's backtrace would load.
func buildDeep(t *testing.T) string {
	t.Helper()
	return tracertest.Build(t, "deep.c", "-O1", "-fno-optimize-sibling-calls",
		"-Wl,--no-as-needed", "-lgcc_s")
}

func testDeepNative(t *testing.T, calls int) {
	program := buildDeep(t)
	stack, leftOut, want := deepStack(t, start(t, program, fmt.Sprint(calls)), 100)

	if len(want) < calls {
		t.Fatalf("glibc finds %d frames", len(want))
	}

	addresses := func(frames []growth.Frame) (addresses []string) {
		for _, f := range frames {
			addresses = append(addresses, fmt.Sprintf("%#x", f.Address))
		}
		return addresses
	}
	leaf, root := split(stack.Frames)
	if leaf[0].Function != "malloc" || leaf[1].Function != "leaf" {
		t.Errorf("innermost frames %+v, want malloc and leaf", leaf[:2])
	}
	// The program's first address is in its call of backtrace.
	mustEndLike(t, addresses(leaf[2:]), addresses(root), want[1:], leftOut, 1)
}

func testDeepPython(t *testing.T, calls int) {
	frame := func(mark string) pythonFrame {
		return pythonFrame{Line: lineWith(t, "recursion.py", mark)}
	}
	want := slices.Concat([]pythonFrame{frame("leaf")},
		slices.Repeat([]pythonFrame{frame("call")}, calls),
		[]pythonFrame{frame("main"), frame("module")})

	const bytes = 701 // with the terminating zero
	target := start(t, python, tracertest.Source("recursion.py"), fmt.Sprint(calls))
	stack, leftOut, _ := deepStack(t, target, bytes)
	lines := func(frames []growth.Frame) (lines []pythonFrame) {
		for _, f := range frames {
			if f.Python {
				lines = append(lines, pythonFrame{Line: f.Line})
			}
		}
		return lines
	}
	leaf, root := split(stack.Frames)
	mustEndLike(t, lines(leaf), lines(root), want, leftOut, 2)
}

// Beyond the limit the outermost frames are missing, and the stack says so.
func testTooDeep(t *testing.T) {
	program := buildDeep(t)
	target := start(t, program, "3000")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: []string{"heap"}})
	target.Do("go")

	events, _ := counters(t, s)
	if events.StacksShortened != 1 || events.FramesLeftOut != bpf.MaxLeftOut {
		t.Errorf("%d stacks without %d frames, want one without %d", events.StacksShortened,
			events.FramesLeftOut, bpf.MaxLeftOut)
	}
	isCut := func(h growth.Holding) bool {
		return h.Stack.Truncated == "too many frames" && slices.ContainsFunc(h.Stack.Frames, isGap)
	}
	if !slices.ContainsFunc(snapshot(t, s).Holdings, isCut) {
		t.Error("no stack is truncated")
	}
}
