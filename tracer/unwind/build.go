// Package unwind turns the unwind information of ELF files into the tables that the BPF programs
// walk stacks with, and hands these tables to the kernel.
//
// The files belong to the traced process and the tracer runs as root, so they are hostile input:
// the bytes read, their memory, and the size of the table are bounded by the size of the file, and
// damaged information yields no rule rather than a wrong one.
package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// ErrNoInformation means that a file does not say how to unwind its code.
var ErrNoInformation = errors.New("no unwind information")

const (
	maxFrameBytes   = 128 << 20 // bytes of .eh_frame, .debug_frame; libtorch_cpu.so 1.13 has 10 MB
	minSpanLimit    = 64 << 20  // bytes of code that a table may cover for a small file
	spanPerFileByte = 16        // bytes of code more for each byte of the file
)

var errMachine = errors.New("machine is not supported")

// Build makes the table of the ELF file r of size bytes, from .eh_frame, and from .debug_frame
// for the functions that only that describes. path is for messages.
//
// The error wraps ErrNoInformation if the file has neither section. Other errors say that it is
// damaged, or not a 64-bit little-endian ELF file for x86-64 or arm64.
func Build(r io.ReaderAt, size int64, path string) (*Table, error) {
	size = max(size, 0)
	return buildFrom(newFileReader(r, size), size, path)
}

func buildFrom(in *fileReader, size int64, path string) (*Table, error) {
	table, err := build(in, size, isLoader(path))
	if err != nil {
		return nil, fmt.Errorf("read unwind information of %s: %w", path, err)
	}
	return table, nil
}

// isLoader reports whether a path is of the dynamic loader.
func isLoader(path string) bool { return strings.HasPrefix(filepath.Base(path), "ld-") }

// build makes a table of the bytes that it reads by in, and of the other arguments. Nothing else decides
// its contents: files for which all three are the same have the same table.
func build(in *fileReader, size int64, isLoader bool) (*Table, error) {
	img, err := open(in, size)
	if err != nil {
		return nil, err
	}
	if isLoader {
		img.start = img.file.Entry
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

// An image is an opened ELF file: its headers, checked against its size, and where its unwind
// information is.
type image struct {
	file    *pfelf.File
	ehFrame []pfelf.Section // .eh_frame and .eh_frame_hdr
	debug   []pfelf.Section // .debug_frame
	isGo    bool            // contains code of the Go compiler, which keeps frame pointers
	code    []span          // executable segments, sorted and disjoint
	// start is where the dynamic loader starts the process and calls constructors, in code without
	// unwind information; 0: the file is another one.
	start uint64
}

// A span is a range of ELF virtual addresses, end excluded.
type span struct{ start, end uint64 }

func open(in *fileReader, size int64) (*image, error) {
	var file *pfelf.File
	err := recoverPanics(func() (err error) {
		file, err = pfelf.NewFile(in, 0, false)
		if err == nil {
			_ = file.LoadSections() // the program headers serve without them
		}

		return err
	})
	if err != nil {
		return nil, err
	}
	if file.Machine != elf.EM_X86_64 && file.Machine != elf.EM_AARCH64 {
		return nil, fmt.Errorf("%s: %w", file.Machine, errMachine)
	}

	img := &image{file: file}
	img.selectSections(uint64(size))
	img.clampSegments(uint64(size))
	return img, nil
}

// recoverPanics calls the parser, which panics on some damaged files, and turns panics into errors.
func recoverPanics(parse func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("damaged file: %w", p)
		default:
			err = fmt.Errorf("damaged file: %v", p)
		}
	}()

	return parse()
}

// selectSections finds the sections with unwind information. The others stay hidden from the
// parser: above all .gnu_debuglink, whose file it would open, and .gopclntab, whose tables take
// unbounded work if they are damaged.
func (img *image) selectSections(size uint64) {
	for _, section := range img.file.Sections {
		if section.Name == ".gopclntab" || section.Name == ".go.buildinfo" {
			img.isGo = true
		}

		if section.Offset > size || section.Size > min(size-section.Offset, maxFrameBytes) {
			continue
		}

		switch section.Name {
		case ".eh_frame", ".eh_frame_hdr":
			img.ehFrame = append(img.ehFrame, section)
		case ".debug_frame":
			img.debug = append(img.debug, section)
		}
	}
}

// clampSegments limits the segments to the size of the file, and collects the executable ones.
func (img *image) clampSegments(size uint64) {
	for i := range img.file.Progs {
		p := &img.file.Progs[i]
		p.Filesz = min(p.Filesz, size-min(p.Off, size), maxAddress-min(p.Vaddr, maxAddress))
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 {
			img.code = append(img.code, span{p.Vaddr, p.Vaddr + p.Filesz})
		}
	}

	img.code = union(img.code)
}

// union sorts spans and joins those that touch.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var joined []span
	for _, s := range spans {
		if last := len(joined) - 1; last >= 0 && s.start <= joined[last].end {
			joined[last].end = max(joined[last].end, s.end)
		} else {
			joined = append(joined, s)
		}
	}

	return joined
}

// codeEnd returns the end of the executable segments that vaddr lies in. ok is false if it is in
// none.
func (img *image) codeEnd(vaddr uint64) (end uint64, ok bool) {
	i := sort.Search(len(img.code), func(i int) bool { return img.code[i].end > vaddr })
	if i == len(img.code) || vaddr < img.code[i].start {
		return 0, false
	}
	return img.code[i].end, true
}

// functions returns the functions that have unwind information, sorted and disjoint.
func (img *image) functions() ([]*sdtypes.BasicBlock, error) {
	functions, err := img.extract(img.ehFrame)
	functions = img.disjoint(functions)
	if len(img.debug) == 0 {
		return functions, err
	}

	// The program header of .eh_frame_hdr would have the parser find .eh_frame a second time.
	for i := range img.file.Progs {
		if p := &img.file.Progs[i]; p.Type == elf.PT_GNU_EH_FRAME {
			p.Type = elf.PT_NULL
		}
	}

	more, debugErr := img.extract(img.debug)
	more = slices.DeleteFunc(img.disjoint(more),
		func(f *sdtypes.BasicBlock) bool { return overlaps(functions, f) })

	functions = append(functions, more...)
	if len(functions) == 0 {
		return nil, errors.Join(err, debugErr)
	}

	sortFunctions(functions)
	return functions, nil
}

// extract runs the parser on some sections.
func (img *image) extract(sections []pfelf.Section) ([]*sdtypes.BasicBlock, error) {
	// With nil the parser would load all sections.
	img.file.Sections = append([]pfelf.Section{}, sections...)
	ref := pfelf.NewReferenceWithOpenFunc("", noFiles{},
		func() (*pfelf.File, error) { return img.file, nil })

	var functions []*sdtypes.BasicBlock
	err := recoverPanics(func() error {
		data, err := elfunwindinfo.ExtractELF(ref)
		if err == nil {
			functions = data.Blocks
		}

		return err
	})

	return functions, err
}

// noFiles refuses to open further files, because their names come from a hostile one.
type noFiles struct{}

func (noFiles) OpenELF(name string) (*pfelf.File, error) {
	return nil, fmt.Errorf("open %s: %w", name, errors.ErrUnsupported)
}

// disjoint sorts functions and removes those outside the executable segments and those that
// overlap the one before. A function that reaches beyond its segment is clamped.
func (img *image) disjoint(functions []*sdtypes.BasicBlock) []*sdtypes.BasicBlock {
	sortFunctions(functions)
	var end uint64
	return slices.DeleteFunc(functions, func(f *sdtypes.BasicBlock) bool {
		codeEnd, ok := img.codeEnd(f.Start)
		if !ok || f.End <= f.Start || f.End-f.Start > math.MaxUint32 || f.Start < end {
			return true
		}

		f.End = min(f.End, codeEnd)
		end = f.End
		return false
	})
}

func sortFunctions(functions []*sdtypes.BasicBlock) {
	slices.SortStableFunc(functions,
		func(a, b *sdtypes.BasicBlock) int { return cmp.Compare(a.Start, b.Start) })
}

// overlaps reports whether f overlaps one of functions, which are sorted and disjoint.
func overlaps(functions []*sdtypes.BasicBlock, f *sdtypes.BasicBlock) bool {
	i := sort.Search(len(functions), func(i int) bool { return functions[i].End > f.Start })
	return i < len(functions) && functions[i].Start < f.End
}

// extent returns the addresses that a table of functions covers, limited by the size of the file in
// bytes. ok is false if there are no functions.
func (img *image) extent(functions []*sdtypes.BasicBlock, size int64) (extent span, ok bool) {
	if len(functions) == 0 {
		return span{}, false
	}

	extent = span{functions[0].Start, functions[len(functions)-1].End}
	if img.isGo {
		extent = span{img.code[0].start, img.code[len(img.code)-1].end}
	}

	extent.start &^= pageBytes - 1

	limit := uint64(min(minSpanLimit+spanPerFileByte*min(size, maxSpan), maxSpan))
	if extent.end-extent.start > limit {
		extent.end = extent.start + limit
	}

	return extent, true
}

// table makes the table of functions. Code between them has no rule; code of the Go compiler has
// the rule of frame pointers.
func (img *image) table(functions []*sdtypes.BasicBlock, extent span) (*Table, error) {
	rows := 2
	for _, f := range functions {
		rows += len(f.Deltas) + 1
	}

	w := newWriter(img.file.Machine, extent.start, min(rows, maxRows))
	gap := uint32(indexNone)
	if img.isGo {
		gap = w.index(ruleFramePointer)
	}

	end := extent.start
	for _, f := range functions {
		if f.End > extent.end {
			break
		}

		if f.Start-end > sdtypes.MinimumGap ||
			f.Start > end && len(w.rows) == 0 { // smaller gaps are padding
			w.add(end, gap)
			if img.start >= max(end, 1) && img.start < f.Start {
				w.add(img.start, w.index(ruleStop))
			}
		}

		w.addFunction(f)
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
