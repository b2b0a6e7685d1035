// Package unwind turns the unwind information of ELF files into the tables that the kernel side walks stacks with.
//
// The files belong to the traced process and the tracer runs as root, so they are hostile input: what is read, the memory
// it takes, and the size of the table are bounded by the size of the file, and what is damaged yields no rule rather than
// a wrong one.
package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// ErrNoInformation means that a file says nothing about the unwinding of its code.
var ErrNoInformation = errors.New("no unwind information")

// Build reads .eh_frame of the ELF file r of size bytes, and .debug_frame for the functions that only that has. path is
// for messages.
//
// The error wraps ErrNoInformation if the file has neither; other errors say that it is not a 64-bit little-endian ELF
// file of a machine known here, or damaged.
func Build(r io.ReaderAt, size int64, path string) (*Table, error) {
	table, err := build(r, size)
	if err != nil {
		return nil, fmt.Errorf("read unwind information of %s: %w", path, err)
	}
	return table, nil
}

func build(r io.ReaderAt, size int64) (*Table, error) {
	size = max(size, 0)
	img, err := open(r, size)
	if err != nil {
		return nil, err
	}
	functions, err := img.functions()
	if err != nil {
		return nil, err
	}
	extent, ok := img.extent(functions, size)
	if !ok {
		return nil, ErrNoInformation
	}
	return img.table(functions, extent)
}

// functions returns the functions that have unwind information, sorted and apart from each other.
func (img *image) functions() ([]*sdtypes.BasicBlock, error) {
	functions, err := img.extract(img.ehFrame)
	functions = img.sound(functions)
	if len(img.debug) == 0 {
		return functions, err
	}
	// Without its header, .eh_frame is not found a second time.
	for i := range img.file.Progs {
		if p := &img.file.Progs[i]; p.Type == elf.PT_GNU_EH_FRAME {
			p.Type = elf.PT_NULL
		}
	}
	more, debugErr := img.extract(img.debug)
	more = slices.DeleteFunc(img.sound(more), func(f *sdtypes.BasicBlock) bool { return overlaps(functions, f) })
	functions = append(functions, more...)
	if len(functions) == 0 {
		return nil, errors.Join(err, debugErr)
	}
	sortFunctions(functions)
	return functions, nil
}

// extract runs the parser on sections.
func (img *image) extract(sections []pfelf.Section) ([]*sdtypes.BasicBlock, error) {
	img.file.Sections = append([]pfelf.Section{}, sections...) // nil would have it load all of them
	ref := pfelf.NewReferenceWithOpenFunc("", noFiles{}, func() (*pfelf.File, error) { return img.file, nil })
	var functions []*sdtypes.BasicBlock
	err := guarded(func() error {
		data, err := elfunwindinfo.ExtractELF(ref)
		if err == nil {
			functions = data.Blocks
		}
		return err
	})
	return functions, err
}

// noFiles refuses to open further files: their names come from a hostile one.
type noFiles struct{}

func (noFiles) OpenELF(name string) (*pfelf.File, error) {
	return nil, fmt.Errorf("open %s: %w", name, errors.ErrUnsupported)
}

// sound sorts functions and removes those that lie outside the code and those that overlap the one before. What reaches
// beyond the code is cut.
func (img *image) sound(functions []*sdtypes.BasicBlock) []*sdtypes.BasicBlock {
	sortFunctions(functions)
	var end uint64
	return slices.DeleteFunc(functions, func(f *sdtypes.BasicBlock) bool {
		codeEnd, ok := img.codeAt(f.Start)
		if !ok || f.End <= f.Start || f.End-f.Start > math.MaxUint32 || f.Start < end {
			return true
		}
		f.End = min(f.End, codeEnd)
		end = f.End
		return false
	})
}

func sortFunctions(functions []*sdtypes.BasicBlock) {
	slices.SortStableFunc(functions, func(a, b *sdtypes.BasicBlock) int { return cmp.Compare(a.Start, b.Start) })
}

// overlaps says whether f overlaps one of functions, which are sorted and apart from each other.
func overlaps(functions []*sdtypes.BasicBlock, f *sdtypes.BasicBlock) bool {
	i := sort.Search(len(functions), func(i int) bool { return functions[i].End > f.Start })
	return i < len(functions) && functions[i].Start < f.End
}

// extent returns the addresses that a table of functions covers, not more than is due to a file of size bytes. ok is
// false if there are none.
func (img *image) extent(functions []*sdtypes.BasicBlock, size int64) (extent span, ok bool) {
	if len(functions) == 0 {
		return span{}, false
	}
	extent = span{functions[0].Start, functions[len(functions)-1].End}
	if img.isGo {
		extent = span{img.code[0].start, img.code[len(img.code)-1].end}
	}
	extent.start &^= pageBytes - 1
	limit := uint64(min(manyBytes+manyTimes*min(size, maxSpan), maxSpan))
	if extent.end-extent.start > limit {
		extent.end = extent.start + limit
	}
	return extent, true
}

// table writes the rules of functions into a table. Code between them has none; code of the Go compiler has frame
// pointers.
func (img *image) table(functions []*sdtypes.BasicBlock, extent span) (*Table, error) {
	rows := 2
	for _, f := range functions {
		rows += len(f.Deltas) + 1
	}
	w := newWriter(img.file.Machine, extent.start, min(rows, maxRows))
	gap := uint32(noRule)
	if img.isGo {
		gap = w.number(ruleFramePointer)
	}
	end := extent.start
	for _, f := range functions {
		if f.End > extent.end {
			break
		}
		if f.Start-end > sdtypes.MinimumGap || f.Start > end && len(w.rows) == 0 {
			w.add(end, gap)
		}
		w.function(f)
		end = f.End
	}
	if img.isGo && end < extent.end {
		w.add(end, gap)
		end = extent.end
	}
	if len(w.rows) == 0 {
		return nil, ErrNoInformation
	}
	return w.table(end)
}
