package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A Pagemap finds the pages of a process that hold memory, through /proc/PID/pagemap
// (https://docs.kernel.org/admin-guide/mm/pagemap.html). It is not safe for concurrent use. It is
// bound to the program that ran when it was opened: after an exit or execve(2), every method
// returns an error that wraps os.ErrNotExist.
type Pagemap struct {
	file    *os.File
	canScan bool // the kernel has PAGEMAP_SCAN (6.7), as far as we know

	// excluded are the categories without memory that this kernel supports.
	excluded uint64

	cuts []uint64 // addresses at which a scan ends, sorted

	// The kernel writes into these; on the heap, which does not move.
	regions []pageRegion
	entries []byte
}

// OpenPagemap opens the page map of the process. The error wraps os.ErrNotExist if the process is
// gone.
func (p *Process) OpenPagemap() (*Pagemap, error) {
	f, err := p.open("pagemap")
	if err != nil {
		return nil, fmt.Errorf("open pagemap: %w", err)
	}

	return &Pagemap{
		file: f, canScan: true, excluded: pageIsPfnZero | pageIsGuard,
		regions: make([]pageRegion, maxRegions),
	}, nil
}

// Close closes the page map.
func (m *Pagemap) Close() error { return m.file.Close() }

// SupportsScan reports whether the kernel has PAGEMAP_SCAN (6.7). With it the kernel skips
// untouched memory itself, so that large reservations cost nothing.
func (m *Pagemap) SupportsScan() bool {
	if m.canScan {
		_, _, err := m.scanOnce(0, 0, inPageTables)
		m.canScan = !errors.Is(err, unix.ENOTTY)
	}
	return m.canScan
}

// checkProgram returns os.ErrNotExist if the program of the page map is gone: the file reads empty
// then.
func (m *Pagemap) checkProgram() error {
	var entry [entrySize]byte
	if n, err := m.file.ReadAt(entry[:], 0); n == 0 && errors.Is(err, io.EOF) {
		return os.ErrNotExist
	}
	return nil
}

// struct pm_scan_arg of include/uapi/linux/fs.h.
type pmScanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages       uint64
	categoryInverted, categoryMask, categoryAnyofMask, returnMask uint64
}

// struct page_region of include/uapi/linux/fs.h.
type pageRegion struct{ start, end, categories uint64 }

// Constants of include/uapi/linux/fs.h.
const (
	pagemapScan   = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsPfnZero = 1 << 5
	pageIsHuge    = 1 << 6
	pageIsGuard   = 1 << 8 // 6.15

	// inPageTables are the categories that the kernel finds without looking up the page itself.
	inPageTables = pageIsPresent | pageIsSwapped | pageIsHuge
)

const (
	// maxRegions is how many regions one PAGEMAP_SCAN returns at most.
	maxRegions = 512

	// One PAGEMAP_SCAN holds the process's mmap lock for reading: about 0.4 ms for so many bytes of
	// pages that it finds, and 0.05 ms for so many mappings that it walks.
	maxScanBytes    = 256 << 20
	maxScanMappings = 256
)

// SetMappings sets the mappings of the process, in address order, so that one scan walks few of
// them.
func (m *Pagemap) SetMappings(maps []Mapping) {
	m.cuts = m.cuts[:0]
	for i := maxScanMappings; i < len(maps); i += maxScanMappings {
		m.cuts = append(m.cuts, maps[i].Start)
	}
}

// nextCut returns where a scan from start on ends: at end, or after maxScanMappings.
func (m *Pagemap) nextCut(start, end uint64) uint64 {
	i := sort.Search(len(m.cuts), func(i int) bool { return m.cuts[i] > start })
	if i == len(m.cuts) {
		return end
	}
	return min(end, m.cuts[i])
}

// scan finds the runs between start and end, whole pages, by the ioctl PAGEMAP_SCAN. The error
// wraps unix.ENOTTY if the kernel lacks it.
//
// For PAGE_IS_FILE the kernel looks up each page. The other categories are in the page tables,
// which it walks five times as fast.
func (m *Pagemap) scan(start, end, categories uint64, to *runMerger) error {
	for start < end {
		n, next, err := m.scanOnce(start, m.nextCut(start, end), categories)
		if errors.Is(err, unix.ESRCH) {
			err = os.ErrNotExist
		}
		if err != nil {
			return fmt.Errorf("scan pagemap: %w", err)
		}

		for _, r := range m.regions[:n] {
			err := to.add(mem.Run{
				Span:    mem.Span{Start: r.start, End: r.end},
				Swapped: r.categories&pageIsPresent == 0,
				File:    r.categories&pageIsFile != 0,
				Huge:    r.categories&pageIsHuge != 0,
			})
			if err != nil {
				return err
			}
		}

		if next <= start {
			break
		}
		start = next
	}

	// Older kernels find no pages of a program that is gone, without an error.
	if err := m.checkProgram(); err != nil {
		return fmt.Errorf("scan pagemap: %w", err)
	}
	return nil
}

// scanOnce makes one PAGEMAP_SCAN call. It returns how many of m.regions the kernel has filled and
// the address at which it stopped.
func (m *Pagemap) scanOnce(start, end, categories uint64) (n int, next uint64, err error) {
	argument := pmScanArg{
		start: start, end: end, maxPages: maxScanBytes / PageSize,
		vec: uint64(uintptr(unsafe.Pointer(&m.regions[0]))), vecLen: uint64(len(m.regions)),
		categoryInverted: m.excluded, categoryMask: m.excluded, // none of these,
		categoryAnyofMask: pageIsPresent | pageIsSwapped, // and one of those
		returnMask:        categories,
	}
	argument.size = uint64(unsafe.Sizeof(argument))

	var found uintptr
	var errno unix.Errno
	hostile.Undisturbed(func() {
		found, _, errno = unix.Syscall(unix.SYS_IOCTL, m.file.Fd(), pagemapScan,
			uintptr(unsafe.Pointer(&argument)))
	})
	runtime.KeepAlive(m)

	if errors.Is(errno, unix.EINVAL) && m.excluded&pageIsGuard != 0 {
		m.excluded &^= pageIsGuard // a kernel before 6.15
		return m.scanOnce(start, end, categories)
	}
	if errno != 0 {
		return 0, 0, errno
	}
	return min(int(found), len(m.regions)), argument.walkEnd, nil
}

// Bits of a pagemap entry.
const (
	entryPresent         = 1 << 63
	entrySwapped         = 1 << 62
	entryFile            = 1 << 61
	entryGuard           = 1 << 58 // 6.15; 0 before
	entryExclusiveMapped = 1 << 56
)

const (
	entrySize  = 8 // bytes
	maxEntries = 32 << 10
)

// MaxReadBytes bounds the address space that one call covers without PAGEMAP_SCAN. Reading the page
// map costs 5 ms a GiB of address space.
const MaxReadBytes = 64 << 30

// ErrTooLarge means that a range exceeds MaxReadBytes and the kernel lacks PAGEMAP_SCAN.
var ErrTooLarge = errors.New(
	"more than 64 GiB in one call, where the kernel has no PAGEMAP_SCAN (Linux 6.7 has)")

var errOutside = errors.New("beyond the address space of a process")

// read finds the runs between start and end, whole pages, by reading the entries of all pages.
// decode returns the state of an entry's page; ok is false for a page that does not count.
func (m *Pagemap) read(start, end uint64, to *runMerger, decode entryDecoder) error {
	if end-start > MaxReadBytes {
		return fmt.Errorf("read pagemap: %w", ErrTooLarge)
	}

	for start < end {
		entries, err := m.readEntries(start, end)
		if err != nil {
			return err
		}
		for ; len(entries) > 0; entries = entries[entrySize:] {
			if run, ok := decode(binary.LittleEndian.Uint64(entries)); ok {
				run.Start, run.End = start, start+PageSize
				if err := to.add(run); err != nil {
					return err
				}
			}
			start += PageSize
		}
	}
	return nil
}

// readEntries reads the entries of the pages from start on, at least one, valid until the next
// call.
func (m *Pagemap) readEntries(start, end uint64) ([]byte, error) {
	if m.entries == nil {
		m.entries = make([]byte, maxEntries*entrySize)
	}

	want := min((end-start)/PageSize, maxEntries) * entrySize
	n, err := m.file.ReadAt(m.entries[:want], int64(start/PageSize*entrySize))
	if n < entrySize {
		if errors.Is(err, io.EOF) {
			if err = m.checkProgram(); err == nil {
				err = errOutside
			}
		}
		return nil, fmt.Errorf("read pagemap: %w", err)
	}
	return m.entries[:n-n%entrySize], nil
}

// An entryDecoder returns the state of a page by its entry in the page map, without addresses; ok
// is false if the page does not count.
type entryDecoder func(entry uint64) (run mem.Run, ok bool)

// decodeEntry decodes a page that holds memory.
func decodeEntry(entry uint64) (mem.Run, bool) {
	ok := entry&(entryPresent|entrySwapped) != 0 && entry&entryGuard == 0
	return mem.Run{Swapped: entry&entryPresent == 0, File: entry&entryFile != 0}, ok
}

// decodeAnonymous is decodeEntry without File.
func decodeAnonymous(entry uint64) (mem.Run, bool) { return decodeEntry(entry &^ entryFile) }

// decodeShared decodes a page that is in memory and mapped more than once.
func decodeShared(entry uint64) (mem.Run, bool) {
	run, _ := decodeEntry(entry)
	return run, entry&(entryPresent|entryExclusiveMapped) == entryPresent
}
