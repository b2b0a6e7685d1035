package unwind

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// buildFile builds the table of a file that has to have one.
func buildFile(t testing.TB, path string) *Table {
	t.Helper()
	return buildBytes(t, contents(t, path))
}

func buildBytes(t testing.TB, data []byte) *Table {
	t.Helper()
	table := tracertest.Must(Build(bytes.NewReader(data), int64(len(data)), "test"))(t)

	checkTable(t, table)
	return table
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	return tracertest.Must(os.ReadFile(path))(t)
}

// compile makes a shared object without any start-up code of source, which is C or, with the
// suffix .s, assembly.
func compile(t testing.TB, suffix, source string, flags ...string) string {
	t.Helper()
	in, out := write(t, "source"+suffix, source), filepath.Join(t.TempDir(), "object.so")
	arguments := []string{"-shared", "-nostdlib", "-Wl,--build-id=none", "-o", out, in}
	tracertest.Run(t, "gcc", append(arguments, flags...)...)
	return out
}

// write makes a file and returns its path.
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	tracertest.NoError(t, os.WriteFile(path, []byte(content), 0o600))

	return path
}

// function is an assembly function with call frame information; options is the argument of
// .cfi_startproc. A line "N:" of body becomes the global label NAME_N.
func function(name, options, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".globl %s\n.type %[1]s, @function\n%[1]s:\n.cfi_startproc %s\n", name, options)
	for line := range strings.Lines(body) {
		if number, ok := strings.CutSuffix(strings.TrimSpace(line), ":"); ok {
			line = fmt.Sprintf(".globl %s_%s\n%[1]s_%[2]s:\n", name, number)
		}

		b.WriteString(line)
	}

	fmt.Fprintf(&b, "\n.cfi_endproc\n.size %s, .-%[1]s\n", name)
	return b.String()
}

// symbols returns the addresses of the dynamic symbols.
func symbols(t testing.TB, data []byte) map[string]elf.Symbol {
	t.Helper()
	file := tracertest.Must(elf.NewFile(bytes.NewReader(data)))(t)
	all := tracertest.Must(file.DynamicSymbols())(t)

	found := make(map[string]elf.Symbol)
	for _, s := range all {
		found[s.Name] = s
	}

	return found
}

// checkTable checks conditions that hold for every table, and looks up every row's first address
// and the one before.
func checkTable(t testing.TB, table *Table) {
	t.Helper()
	head := table.header()
	if table.Base%pageBytes != 0 || head.Rows != headerWords+head.Pages+1 || head.Rules%2 != 0 ||
		head.Rules != (head.Rows+uint32(table.Rows)+1)&^1 || 2*len(table.Words) != int(head.Rules)+2*table.Rules ||
		uint64(head.Base)<<bpf.PageBits != table.Base || head.Pages == 0 || table.Rows == 0 {
		t.Fatalf("header %+v, %d rows, %d rules, %d words, base %#x", head, table.Rows, table.Rules,
			len(table.Words), table.Base)
	}
	if table.word(headerWords) != 0 || table.word(head.Rows)>>16 != 0 {
		t.Fatal("row 0 is not at address 0")
	}
	if got := table.word(headerWords + head.Pages); got != uint32(table.Rows) {
		t.Fatalf("the index ends at row %d of %d", got, table.Rows)
	}

	for page := range head.Pages {
		checkPage(t, table, page)
	}

	for _, vaddr := range []uint64{
		0, table.Base - 1, table.Base + uint64(head.Pages)<<bpf.PageBits, 1<<64 - 1,
	} {
		if got := table.Rule(vaddr); got != ruleNone &&
			(vaddr-table.Base)>>bpf.PageBits >= uint64(head.Pages) {
			t.Fatalf("at %#x, outside the table: %s", vaddr, describe(got))
		}
	}
}

func checkPage(t testing.TB, table *Table, page uint32) {
	t.Helper()
	head := table.header()
	first, end := table.word(headerWords+page), table.word(headerWords+page+1)
	if first > end || end > uint32(table.Rows) {
		t.Fatalf("page %d has the rows from %d to %d", page, first, end)
	}

	for i := first; i < end; i++ {
		row := table.word(head.Rows + i)
		if row>>16 >= pageBytes || row&ruleIndexMask >= uint32(table.Rules) {
			t.Fatalf("row %d is %#x", i, row)
		}
		if i > first && row>>16 <= table.word(head.Rows+i-1)>>16 {
			t.Fatalf("rows %d and %d are not in order", i-1, i)
		}

		vaddr := table.Base + uint64(page)<<bpf.PageBits + uint64(row>>16)
		rule := head.Rules + 2*(row&ruleIndexMask)
		if got := table.Rule(vaddr); got != unpackRule(table.word(rule), table.word(rule+1)) {
			t.Fatalf("at %#x, the start of row %d: %s", vaddr, i, describe(got))
		}
		if i > 0 && row&ruleIndexMask == table.word(head.Rows+i-1)&ruleIndexMask {
			t.Fatalf("rows %d and %d are the same rule", i-1, i)
		}

		if i > 0 {
			before := head.Rules + 2*(table.word(head.Rows+i-1)&ruleIndexMask)
			if got := table.Rule(vaddr - 1); got != unpackRule(table.word(before),
				table.word(before+1)) {
				t.Fatalf("at %#x, the end of row %d: %s", vaddr-1, i-1, describe(got))
			}
		}
	}
}
