package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
)

const (
	maxFrames = 128 << 20 // bytes of .eh_frame or .debug_frame; libtorch_cpu.so 1.13 has 10 MB, and 80 MB of table rows
	spareRead = 32 << 20  // bytes that are read besides: headers, section names, entries that others refer to
	leastRead = 1 << 10   // bytes that one reading counts for
)

var (
	errTooMuch = errors.New("takes more reading than any real file")
	errMachine = errors.New("machine is not supported")
)

// An input is a file that is read with a limit. The parser takes entries that others refer to again and again, and does
// not notice the end of a file that is shorter than its headers say: the limit ends both.
type input struct {
	r    io.ReaderAt
	left int64 // bytes
}

// ReadAt panics with errTooMuch once the limit is reached, for the parser goes on after errors.
func (in *input) ReadAt(p []byte, offset int64) (int, error) {
	in.left -= max(int64(len(p)), leastRead)
	if in.left < 0 {
		panic(errTooMuch)
	}
	return in.r.ReadAt(p, offset)
}

// guarded calls the parser, which panics on some damaged files.
func guarded(parse func() error) (err error) {
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

// A span is a range of ELF virtual addresses.
type span struct{ start, end uint64 }

// An image is an opened ELF file: its headers, checked against its size, and where it has unwind information.
type image struct {
	file    *pfelf.File
	ehFrame []pfelf.Section // .eh_frame and .eh_frame_hdr
	debug   []pfelf.Section // .debug_frame
	isGo    bool            // contains code of the Go compiler, which keeps frame pointers
	code    []span          // executable, sorted, apart from each other
}

func open(r io.ReaderAt, size int64) (*image, error) {
	var file *pfelf.File
	in := &input{r: r, left: spareRead + 2*min(size, maxFrames)}
	err := guarded(func() (err error) {
		file, err = pfelf.NewFile(in, 0, false)
		if err == nil {
			_ = file.LoadSections() // without them, the program headers are enough
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
	img.sort(uint64(size))
	img.clamp(uint64(size))
	return img, nil
}

// sort finds the sections that are of use. The others stay hidden from the parser: above all .gnu_debuglink, whose file
// it would open, and .gopclntab, whose tables take unbounded work if they are damaged.
func (img *image) sort(size uint64) {
	for _, section := range img.file.Sections {
		if section.Name == ".gopclntab" || section.Name == ".go.buildinfo" {
			img.isGo = true
		}
		if section.Offset > size || section.Size > min(size-section.Offset, maxFrames) {
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

// clamp limits the segments to what the file holds, and finds those with code.
func (img *image) clamp(size uint64) {
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

// codeAt returns the end of the code that vaddr lies in.
func (img *image) codeAt(vaddr uint64) (end uint64, ok bool) {
	i := sort.Search(len(img.code), func(i int) bool { return img.code[i].end > vaddr })
	if i == len(img.code) || vaddr < img.code[i].start {
		return 0, false
	}
	return img.code[i].end, true
}
