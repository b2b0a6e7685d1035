package bpf

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The verifier's limits for a program and the functions that it calls, together. Linux 5.15 and 6.1
// count 32 bytes at least for each call (check_max_stack_depth in kernel/bpf/verifier.c); newer
// kernels count fewer, so that only the old ones would refuse larger stacks.
const (
	mostStack = 512 // bytes
	mostCalls = 8
	stackStep = 32 // bytes
)

// A function has the verifier's counts of it.
type function struct {
	stack int // bytes
	calls []string
}

func TestStackOfCalls(t *testing.T) {
	spec := tracertest.Must(LoadKernel())(t)
	deepest := 0
	for name, program := range spec.Programs {
		functions := functionsOf(program.Instructions)
		stack, calls := measure(functions, name)
		if stack > mostStack || calls > mostCalls {
			t.Errorf("%s: %d bytes of stack in %d calls, and %d in %d are allowed", name, stack,
				calls,
				mostStack, mostCalls)
		}
		deepest = max(deepest, stack)
	}
	if deepest < 256 {
		t.Errorf("at most %d bytes of stack: the test is wrong", deepest)
	}
}

// functionsOf splits the instructions of a program into its functions.
func functionsOf(instructions asm.Instructions) map[string]*function {
	functions := make(map[string]*function)
	var current *function
	copies := make(map[asm.Register]bool) // of the frame pointer

	for _, in := range instructions {
		if name := in.Symbol(); name != "" {
			current = &function{}
			functions[name] = current
			clear(copies)
		}

		class := in.OpCode.Class()
		switch {
		case in.IsFunctionCall():
			current.calls = append(current.calls, in.Reference())
		case class.IsLoad() && in.Src == asm.R10, class.IsStore() && in.Dst == asm.R10:
			current.stack = max(current.stack, -int(in.Offset))
		case in.OpCode == asm.Add.Op(asm.ImmSource) && copies[in.Dst]:
			current.stack = max(current.stack, -int(in.Constant))
		}
		if class.IsALU() {
			copies[in.Dst] = in.OpCode == asm.Mov.Op(asm.RegSource) && in.Src == asm.R10
		}
	}
	return functions
}

// measure returns the bytes of stack, and the number of calls, of the deepest chains of calls from a
// function on, itself included.
func measure(functions map[string]*function, name string) (stack, calls int) {
	f := functions[name]
	for _, callee := range f.calls {
		below, further := measure(functions, callee)
		stack, calls = max(stack, below), max(calls, further)
	}
	own := max(f.stack, 1)
	return stack + (own+stackStep-1)/stackStep*stackStep, calls + 1
}
