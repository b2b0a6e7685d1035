package unwind

import (
	"debug/elf"
	"errors"
	"math"
	"sort"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/allocscope/allocscope/bpf"
)

const (
	pageBytes   = 1 << bpf.PageBits
	headerWords = 4        // struct table_header, in words of 4 bytes
	maxRows     = 16 << 20 // 64 MiB; libtorch_cpu.so 1.13 has 1.26 million
	maxRules    = 1 << 16  // 16 bits of a row; libtorch_cpu.so 1.13 has 632
	maxSpan     = 1 << 32  // bytes of code in one table; the index takes a 256th
	maxWords    = (maxSpan/pageBytes+maxRows)/2 + maxRules + headerWords
	maxAddress  = 1 << (32 + bpf.PageBits) // the header has 32 bits for the page of an address

	indexNone        = 0 // of RULE_NONE in every table
	indexUnsupported = 1 // of RULE_UNSUPPORTED in every table

	ruleIndexMask = 1<<16 - 1 // of a row; the bits above are the address in the page
)

var errRows = errors.New("more unwind rows than any real file has")

// A Table shows how to unwind the code of one file: struct table_header of
// bpf/include/stack_types.h and the rows and rules behind it. A row holds an address and the index
// of the rule that holds from there on.
type Table struct {
	Base  uint64   // ELF virtual address of the table's address 0, a multiple of 1 << bpf.PageBits
	Words []uint64 // as the BPF programs read them: header, page index, rows, rules

	Rows, Rules int
}

// word returns word i of 4 bytes.
func (t *Table) word(i uint32) uint32 { return uint32(t.Words[i/2] >> (i % 2 * 32)) }

// set sets word i, which has to be 0.
func (t *Table) set(i, value uint32) { t.Words[i/2] |= uint64(value) << (i % 2 * 32) }

func (t *Table) header() bpf.TableHeader {
	return bpf.TableHeader{
		Pages: t.word(0),
		Base:  t.word(1),
		Rows:  t.word(2),
		Rules: t.word(3),
	}
}

// isValid reports whether look-ups at all addresses stay within the table, and find a rule that
// writer makes.
func (t *Table) isValid() bool {
	words := uint64(len(t.Words)) * 2 // of 4 bytes
	if words < headerWords || words > 2*maxWords {
		return false
	}

	head := t.header()
	rows, rules := uint64(t.Rows), uint64(t.Rules)
	if uint64(head.Base)<<bpf.PageBits != t.Base ||
		rows == 0 || rows > maxRows || rules == 0 || rules > maxRules ||
		uint64(head.Rows) != headerWords+uint64(head.Pages)+1 ||
		uint64(head.Rules) != (uint64(head.Rows)+rows+1)&^1 ||
		words != uint64(head.Rules)+2*rules {
		return false
	}

	return t.hasValidIndex(head) && t.hasValidRules(head)
}

// hasValidIndex checks that the pages have all rows, in order, and that row 0 is at address 0.
func (t *Table) hasValidIndex(head bpf.TableHeader) bool {
	if head.Pages == 0 || t.word(headerWords) != 0 || t.word(headerWords+1) == 0 ||
		t.word(headerWords+head.Pages) != uint32(t.Rows) || t.word(head.Rows)>>16 != 0 {
		return false
	}

	for page := range head.Pages {
		first, end := t.word(headerWords+page), t.word(headerWords+page+1)
		if first > end || end > uint32(t.Rows) {
			return false
		}

		for i := first; i < end; i++ {
			row := t.word(head.Rows + i)
			if row>>16 >= pageBytes || int(row&ruleIndexMask) >= t.Rules ||
				i > first && row>>16 <= t.word(head.Rows+i-1)>>16 {
				return false
			}
		}
	}

	return true
}

func (t *Table) hasValidRules(head bpf.TableHeader) bool {
	for i := range uint32(t.Rules) {
		rule := unpackRule(t.word(head.Rules+2*i), t.word(head.Rules+2*i+1))
		if bpf.RuleKind(rule.Kind) > bpf.RuleFramePointer {
			return false
		}
	}

	return true
}

// Rule returns the rule at an ELF virtual address, as the BPF programs look it up. Outside the
// table it is RULE_NONE.
func (t *Table) Rule(vaddr uint64) bpf.Rule {
	head := t.header()
	address := vaddr - t.Base // wraps around below Base, to beyond all pages
	if address>>bpf.PageBits >= uint64(head.Pages) {
		return ruleNone
	}

	page := uint32(address >> bpf.PageBits)
	first, end := t.word(headerWords+page), t.word(headerWords+page+1)
	later := sort.Search(int(end-first), func(i int) bool {
		return uint64(t.word(head.Rows+first+uint32(i))>>16) > address%pageBytes
	})

	// The row before the first later one may belong to an earlier page.
	row := t.word(head.Rows + first + uint32(later) - 1)
	rule := head.Rules + 2*(row&ruleIndexMask)
	return unpackRule(t.word(rule), t.word(rule+1))
}

func unpackRule(low, high uint32) bpf.Rule {
	return bpf.Rule{
		Kind: uint8(low), Fp: uint8(low >> 8), FpOffset: int16(low >> 16), CfaOffset: int32(high),
	}
}

func packRule(r bpf.Rule) (low, high uint32) {
	return uint32(r.Kind) | uint32(r.Fp)<<8 | uint32(uint16(r.FpOffset))<<16, uint32(r.CfaOffset)
}

// A writer collects the rows of a table.
type writer struct {
	machine elf.Machine
	base    uint64   // ELF virtual address
	pages   []uint32 // index of the first row of each page so far
	rows    []uint32
	full    bool // more than maxRows rows were added
	rules   []bpf.Rule
	indexes map[bpf.Rule]uint32
	cached  map[sdtypes.UnwindInfo]uint32 // index of its rule: few kinds in a million rows
}

// newWriter starts a table at the ELF virtual address base, with capacity for rows.
func newWriter(machine elf.Machine, base uint64, rows int) *writer {
	return &writer{
		machine: machine,
		base:    base,
		rows:    make([]uint32, 0, rows),
		rules:   []bpf.Rule{indexNone: ruleNone, indexUnsupported: ruleUnsupported},
		indexes: map[bpf.Rule]uint32{ruleNone: indexNone, ruleUnsupported: indexUnsupported},
		cached:  make(map[sdtypes.UnwindInfo]uint32),
	}
}

// addFunction adds the rows of f.
func (w *writer) addFunction(f *sdtypes.BasicBlock) {
	if !ascending(f.Deltas) {
		w.add(f.Start, indexUnsupported)
		return
	}

	if len(f.Deltas) == 0 || f.Deltas[0].Offset > 0 {
		w.add(f.Start, w.index(initialRule(w.machine)))
	}

	for i := range f.Deltas {
		delta := &f.Deltas[i]
		if uint64(delta.Offset) >= f.End-f.Start {
			return
		}

		if i+1 == len(f.Deltas) ||
			f.Deltas[i+1].Offset > delta.Offset { // otherwise it holds for no address
			w.add(f.Start+uint64(delta.Offset), w.indexOf(delta.Info))
		}
	}
}

// ascending reports whether the offsets never go down.
func ascending(deltas sdtypes.StackDeltaArray) bool {
	for i := 1; i < len(deltas); i++ {
		if deltas[i].Offset < deltas[i-1].Offset {
			return false
		}
	}

	return true
}

// add adds a row: a rule holds from the ELF virtual address vaddr on, which is above the address of
// the row before.
func (w *writer) add(vaddr uint64, index uint32) {
	if len(w.rows) > 0 && w.rows[len(w.rows)-1]&ruleIndexMask == index {
		return
	}

	if len(w.rows) == maxRows {
		w.full = true
		return
	}

	address := vaddr - w.base
	w.startPages(address >> bpf.PageBits)
	w.rows = append(w.rows, uint32(address%pageBytes)<<16|index)
}

// startPages makes the next row the first of all pages up to last that have none yet.
func (w *writer) startPages(last uint64) {
	for uint64(len(w.pages)) <= last {
		w.pages = append(w.pages, uint32(len(w.rows)))
	}
}

// indexOf returns the index of the rule for info.
func (w *writer) indexOf(info sdtypes.UnwindInfo) uint32 {
	index, ok := w.cached[info]
	if ok {
		return index
	}

	index = w.index(ruleOf(w.machine, info))
	if len(w.cached) < maxRules {
		w.cached[info] = index
	}

	return index
}

// index returns the index of a rule. With maxRules rules, any other one becomes RULE_UNSUPPORTED.
func (w *writer) index(rule bpf.Rule) uint32 {
	index, ok := w.indexes[rule]
	if ok {
		return index
	}
	if len(w.rules) == maxRules {
		return indexUnsupported
	}

	index = uint32(len(w.rules))
	w.rules = append(w.rules, rule)
	w.indexes[rule] = index
	return index
}

// table assembles the table. From the ELF virtual address end on there is no rule.
func (w *writer) table(end uint64) (*Table, error) {
	if end%pageBytes != 0 {
		w.add(end, indexNone)
	}

	if w.full {
		return nil, errRows
	}

	pages := (end - w.base + pageBytes - 1) >> bpf.PageBits
	w.startPages(pages)
	head := bpf.TableHeader{
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

	for i, row := range w.pages {
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

// Rules without parameters.
var (
	ruleNone         = bpf.Rule{Kind: uint8(bpf.RuleNone)}
	ruleUnsupported  = bpf.Rule{Kind: uint8(bpf.RuleUnsupported)}
	ruleFramePointer = bpf.Rule{Kind: uint8(bpf.RuleFramePointer)}
	ruleStop         = bpf.Rule{Kind: uint8(bpf.RuleStop)}
)

// commands maps the parser's commands to rules without parameters.
var commands = map[int32]bpf.RuleKind{
	support.UnwindCommandStop:         bpf.RuleStop,
	support.UnwindCommandPLT:          bpf.RulePlt,
	support.UnwindCommandSignal:       bpf.RuleSignal,
	support.UnwindCommandFramePointer: bpf.RuleFramePointer,
}

// leafRegisters are the registers that hold their value only in the innermost frame.
var leafRegisters = map[uint8]bpf.LeafRegister{
	support.UnwindRegX86RAX: bpf.LeafRax,
	support.UnwindRegX86RDI: bpf.LeafRdi,
	support.UnwindRegX86R8:  bpf.LeafR8,
	support.UnwindRegX86R9:  bpf.LeafR9,
	support.UnwindRegX86R11: bpf.LeafR11,
	support.UnwindRegX86R13: bpf.LeafR13,
	support.UnwindRegX86R15: bpf.LeafR15,
}

// initialRule returns the rule at the entry of a function, by the ABI. A function without rows
// has this one throughout.
func initialRule(machine elf.Machine) bpf.Rule {
	if machine == elf.EM_AARCH64 {
		return ruleOf(machine, sdtypes.UnwindInfoLR)
	}
	return ruleOf(machine, sdtypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 8})
}

// ruleOf converts info to the form of the BPF programs, RULE_UNSUPPORTED if there is none. The
// meaning of info:
// https://github.com/open-telemetry/opentelemetry-ebpf-profiler/blob/main/support/ebpf/native_stack_trace.h
func ruleOf(machine elf.Machine, info sdtypes.UnwindInfo) bpf.Rule {
	if info.Flags&support.UnwindFlagCommand != 0 {
		if kind, ok := commands[info.Param]; ok {
			return bpf.Rule{Kind: uint8(kind)}
		}
		return ruleUnsupported
	}

	if machine == elf.EM_AARCH64 {
		return ruleOfARM(info)
	}
	return ruleOfX86(info)
}

func ruleOfX86(info sdtypes.UnwindInfo) bpf.Rule {
	if info.Flags&support.UnwindFlagRegisterRA != 0 {
		return returnRegisterRule(info)
	}

	rule := cfaRule(info)
	switch info.AuxBaseReg {
	case support.UnwindRegInvalid:
		return withFP(rule, bpf.FpSame, 0)
	case support.UnwindRegCfa:
		return withFP(rule, bpf.FpAtCfa, info.AuxParam)
	case support.UnwindRegFp:
		return withFP(rule, bpf.FpAtFp, info.AuxParam)
	}

	return ruleUnsupported
}

func ruleOfARM(info sdtypes.UnwindInfo) bpf.Rule {
	if info.BaseReg != support.UnwindRegSp && info.BaseReg != support.UnwindRegFp ||
		info.Flags&(support.UnwindFlagRegisterRA|support.UnwindFlagDerefCfa) != 0 {
		return ruleUnsupported
	}

	rule := cfaRule(info)
	switch info.AuxBaseReg {
	case support.UnwindRegLr:
		return withFP(rule, bpf.FpSame, 0)
	case support.UnwindRegCfa:
		if info.Flags&support.UnwindFlagFrame != 0 {
			return withFP(rule, bpf.FpFrame, info.AuxParam)
		}
		return withFP(rule, bpf.FpAtCfa, info.AuxParam)
	}

	return ruleUnsupported
}

// returnRegisterRule returns the rule of a function that keeps its return address in a register.
func returnRegisterRule(info sdtypes.UnwindInfo) bpf.Rule {
	leaf, ok := leafRegisters[info.AuxBaseReg]
	if !ok || info.BaseReg != support.UnwindRegSp || info.Flags&support.UnwindFlagDerefCfa != 0 {
		return ruleUnsupported
	}
	return bpf.Rule{
		Kind:      uint8(bpf.RuleReturnRegister),
		Fp:        uint8(leaf) << 4,
		CfaOffset: info.Param,
	}
}

// cfaRule returns the part of a rule that computes the canonical frame address.
func cfaRule(info sdtypes.UnwindInfo) bpf.Rule {
	plain, deref := bpf.RuleSp, bpf.RuleSpDeref
	switch info.BaseReg {
	case support.UnwindRegSp:
	case support.UnwindRegFp:
		plain, deref = bpf.RuleFp, bpf.RuleFpDeref
	default:
		leaf, ok := leafRegisters[info.BaseReg]
		if !ok || info.Flags&support.UnwindFlagDerefCfa != 0 {
			return ruleUnsupported
		}
		return bpf.Rule{
			Kind: uint8(
				bpf.RuleRegister), Fp: uint8(leaf) << 4, CfaOffset: info.Param,
		}
	}

	if info.Flags&support.UnwindFlagDerefCfa == 0 {
		return bpf.Rule{Kind: uint8(plain), CfaOffset: info.Param}
	}

	before, after := sdtypes.UnpackDerefParam(info.Param)
	return bpf.Rule{Kind: uint8(deref), Fp: uint8(after/8) << 4, CfaOffset: before}
}

// withFP adds to a rule where the caller's frame pointer is.
func withFP(rule bpf.Rule, fp bpf.FpRule, offset int32) bpf.Rule {
	if rule == ruleUnsupported || offset < math.MinInt16 || offset > math.MaxInt16 {
		return ruleUnsupported
	}

	rule.Fp |= uint8(fp)
	rule.FpOffset = int16(offset)
	return rule
}
