package symbol

import (
	"fmt"
	"strings"
	"testing"
)

// One function around three hundred others, each of which answers for itself,
// and symbols of size 0.
func TestNameNested(t *testing.T) {
	var b strings.Builder
	var before []string // so that outer is the last symbol of a block
	for i := range blockSize - 1 {
		before = append(before, fmt.Sprintf("before%d", i))
	}
	b.WriteString(labels(before...))
	b.WriteString(".globl outer\n.type outer,@function\nouter: nop\n")
	for i := range 300 {
		fmt.Fprintf(&b, ".globl f%[1]d\n.type f%[1]d,@function\nf%[1]d: .fill 3,1,0x90\n.size f%[1]d,3\nnop\n", i)
	}
	b.WriteString("nop\n.size outer,.-outer\n.fill 9,1,0x90\n")
	b.WriteString(".globl sizeless\n.type sizeless,@function\nsizeless: nop\nnop\n")
	path := assemble(t, b.String())
	functions := nmFunctions(t, path)
	o, f := newOracle(t, functions), openSound(t, path, "")
	for addr := functions[0].value - 9; addr < functions[len(functions)-1].value+9; addr++ {
		o.check(t, f, addr)
	}
}

func TestNamePrefersGlobal(t *testing.T) {
	for _, test := range []struct{ names, want string }{
		{"l:local g:global_one", "global_one"},
		{"l:local w:weak_one", "weak_one"},
		{"g:_a g:longer", "longer"},
		{"g:_a l:b", "_a"},
		{"g:longer g:short", "short"},
		{"g:b g:a", "a"},
		{"g:_ZN1aC2Ev g:_ZN1aC1Ev", "a::a"},
	} {
		var source strings.Builder
		source.WriteString(".text\n")
		for _, field := range strings.Fields(test.names) {
			binding, name, _ := strings.Cut(field, ":")
			directive := map[string]string{"l": ".local", "w": ".weak", "g": ".globl"}[binding]
			fmt.Fprintf(&source, "%[1]s %[2]s\n.type %[2]s,@function\n.size %[2]s,2\n%[2]s:\n", directive, name)
		}
		source.WriteString("nop\nnop\n")
		path := assemble(t, source.String())
		f := openSound(t, path, "")
		vaddr := nmFunctions(t, path)[0].value
		for _, addr := range []uint64{vaddr, vaddr + 1} {
			if got, ok := f.Name(addr); !ok || got != test.want {
				t.Errorf("Name of %s = %q, %v, want %q", test.names, got, ok, test.want)
			}
		}
	}
}

// A function at address 0 is undefined in all but name.
func TestNameZero(t *testing.T) {
	path := assemble(t, labels("real")+".globl zero\n.type zero,@function\nzero = 0\n.size zero,64\n")
	listed := false
	for _, fn := range nmFunctions(t, path) {
		listed = listed || fn.name == "zero" && fn.value == 0
	}
	if !listed {
		t.Fatal("nm lists no function at 0")
	}
	if name, ok := openSound(t, path, "").Name(0); ok {
		t.Errorf("Name(0) = %q", name)
	}
}
