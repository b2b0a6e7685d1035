package unwind

import (
	"debug/elf"
	"errors"
	"sort"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"

	"github.com/allocscope/allocscope/bpf"
)

const (
	pageBytes   = 1 << bpf.PageBits
	headerWords = 4                        // struct table_header, in words of 4 bytes
	maxRows     = 16 << 20                 // 64 MiB; libtorch_cpu.so 1.13 has 1.26 million
	maxRules    = 1 << 16                  // a row holds a number of 16 bits; libtorch_cpu.so 1.13 has 632
	maxSpan     = 1 << 32                  // bytes of code that one table covers; the index takes a 256th of it
	maxAddress  = 1 << (32 + bpf.PageBits) // the header has 32 bits for the page of an ELF virtual address
	noRule      = 0                        // number of RULE_NONE in every table
	badRule     = 1                        // number of RULE_UNSUPPORTED in every table
	manyBytes   = 64 << 20                 // bytes of code that a table may cover whatever the size of the file
	manyTimes   = 16                       // and beyond it, for each byte of the file
	low16       = 1<<16 - 1
)

var errRows = errors.New("more unwind rows than any real file has")

// A Table is how to unwind the code of one file: struct table_header of bpf/stack_types.h and what follows it.
type Table struct {
	Base  uint64   // ELF virtual address of the table's address 0, a multiple of a page (1 << bpf.PageBits)
	Words []uint64 // as the kernel side reads it: header, index, rows, rules

	Rows, Rules int
}

// word returns word i of 4 bytes.
func (t *Table) word(i uint32) uint32 { return uint32(t.Words[i/2] >> (i % 2 * 32)) }

// set changes word i, which was 0.
func (t *Table) set(i, value uint32) { t.Words[i/2] |= uint64(value) << (i % 2 * 32) }

func (t *Table) header() bpf.KernelTableHeader {
	return bpf.KernelTableHeader{Pages: t.word(0), Base: t.word(1), Rows: t.word(2), Rules: t.word(3)}
}

// Rule looks an ELF virtual address up, as the kernel side does. An address outside the table has RULE_NONE.
func (t *Table) Rule(vaddr uint64) bpf.KernelRule {
	head := t.header()
	address := vaddr - t.Base // before it: beyond all pages
	if address>>bpf.PageBits >= uint64(head.Pages) {
		return ruleNone
	}
	page := uint32(address >> bpf.PageBits)
	first, end := t.word(headerWords+page), t.word(headerWords+page+1)
	later := sort.Search(int(end-first), func(i int) bool {
		return uint64(t.word(head.Rows+first+uint32(i))>>16) > address%pageBytes
	})
	// The row before the first later one: of an earlier page, if there is none in this page.
	row := t.word(head.Rows + first + uint32(later) - 1)
	rule := head.Rules + 2*(row&low16)
	return unpackRule(t.word(rule), t.word(rule+1))
}

func unpackRule(low, high uint32) bpf.KernelRule {
	return bpf.KernelRule{
		Kind: uint8(low), Fp: uint8(low >> 8), FpOffset: int16(low >> 16), CfaOffset: int32(high),
	}
}

func packRule(r bpf.KernelRule) (low, high uint32) {
	return uint32(r.Kind) | uint32(r.Fp)<<8 | uint32(uint16(r.FpOffset))<<16, uint32(r.CfaOffset)
}

// A writer collects the rows of a table.
type writer struct {
	machine elf.Machine
	base    uint64
	index   []uint32 // first row of each page met so far
	rows    []uint32
	full    bool // there were more than maxRows rows
	rules   []bpf.KernelRule
	numbers map[bpf.KernelRule]uint32
	known   map[sdtypes.UnwindInfo]uint32 // numbers of their rules: a file has a million rows of few kinds
}

// newWriter starts a table at the ELF virtual address base, with room for rows.
func newWriter(machine elf.Machine, base uint64, rows int) *writer {
	return &writer{
		machine: machine,
		base:    base,
		rows:    make([]uint32, 0, rows),
		rules:   []bpf.KernelRule{noRule: ruleNone, badRule: ruleUnsupported},
		numbers: map[bpf.KernelRule]uint32{ruleNone: noRule, ruleUnsupported: badRule},
		known:   make(map[sdtypes.UnwindInfo]uint32),
	}
}

// function adds the rows of f.
func (w *writer) function(f *sdtypes.BasicBlock) {
	if !ordered(f.Deltas) {
		w.add(f.Start, badRule)
		return
	}
	if len(f.Deltas) == 0 || f.Deltas[0].Offset > 0 {
		w.add(f.Start, w.number(initialRule(w.machine)))
	}
	for i := range f.Deltas {
		delta := &f.Deltas[i]
		if uint64(delta.Offset) >= f.End-f.Start {
			return
		}
		if i+1 == len(f.Deltas) || f.Deltas[i+1].Offset > delta.Offset { // else it holds for no address
			w.add(f.Start+uint64(delta.Offset), w.numberOf(delta.Info))
		}
	}
}

// ordered says whether the offsets never go down.
func ordered(deltas sdtypes.StackDeltaArray) bool {
	for i := 1; i < len(deltas); i++ {
		if deltas[i].Offset < deltas[i-1].Offset {
			return false
		}
	}
	return true
}

// add says that a rule holds from the ELF virtual address vaddr on; vaddr is higher than that of the row before.
func (w *writer) add(vaddr uint64, number uint32) {
	if len(w.rows) > 0 && w.rows[len(w.rows)-1]&low16 == number {
		return
	}
	if len(w.rows) == maxRows {
		w.full = true
		return
	}
	address := vaddr - w.base
	w.startPages(address >> bpf.PageBits)
	w.rows = append(w.rows, uint32(address%pageBytes)<<16|number)
}

// numberOf finds the number of the rule that info makes.
func (w *writer) numberOf(info sdtypes.UnwindInfo) uint32 {
	number, ok := w.known[info]
	if ok {
		return number
	}
	number = w.number(ruleOf(w.machine, info))
	if len(w.known) < maxRules {
		w.known[info] = number
	}
	return number
}

// number finds the number of a rule. A rule too many becomes RULE_UNSUPPORTED.
func (w *writer) number(rule bpf.KernelRule) uint32 {
	number, ok := w.numbers[rule]
	if ok {
		return number
	}
	if len(w.rules) == maxRules {
		return badRule
	}
	number = uint32(len(w.rules))
	w.rules = append(w.rules, rule)
	w.numbers[rule] = number
	return number
}

// startPages lets all pages up to last that have no first row yet begin with the next row.
func (w *writer) startPages(last uint64) {
	for uint64(len(w.index)) <= last {
		w.index = append(w.index, uint32(len(w.rows)))
	}
}

// table puts the table together; there is no rule from the ELF virtual address end on.
func (w *writer) table(end uint64) (*Table, error) {
	if end%pageBytes != 0 {
		w.add(end, noRule)
	}
	if w.full {
		return nil, errRows
	}
	pages := (end - w.base + pageBytes - 1) >> bpf.PageBits
	w.startPages(pages)
	head := bpf.KernelTableHeader{
		Pages: uint32(pages),
		Base:  uint32(w.base >> bpf.PageBits),
		Rows:  headerWords + uint32(pages) + 1,
	}
	head.Rules = (head.Rows + uint32(len(w.rows)) + 1) &^ 1

	t := &Table{Base: w.base, Rows: len(w.rows), Rules: len(w.rules)}
	t.Words = make([]uint64, int(head.Rules/2)+len(w.rules))
	for i, value := range []uint32{head.Pages, head.Base, head.Rows, head.Rules} {
		t.set(uint32(i), value)
	}
	for i, row := range w.index {
		t.set(headerWords+uint32(i), row)
	}
	for i, row := range w.rows {
		t.set(head.Rows+uint32(i), row)
	}
	for i, rule := range w.rules {
		low, high := packRule(rule)
		t.set(head.Rules+2*uint32(i), low)
		t.set(head.Rules+2*uint32(i)+1, high)
	}
	return t, nil
}
