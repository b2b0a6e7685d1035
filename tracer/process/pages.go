package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages looks at which pages of a process hold memory, through /proc/PID/pagemap.
type Pages struct {
	file *os.File
	size uint64 // bytes of a page
	scan bool   // the kernel has PAGEMAP_SCAN (6.7)
	// Where the kernel writes; on the heap, which does not move.
	regions []pageRegion
	buffer  []byte
}

// Pages opens the page map of the process.
func (p *Process) Pages() (*Pages, error) {
	f, err := os.Open(p.path("pagemap"))
	if err != nil {
		return nil, fmt.Errorf("open pagemap: %w", errors.Unwrap(err))
	}
	return &Pages{file: f, scan: true, size: uint64(os.Getpagesize()), regions: make([]pageRegion, 512)}, nil
}

// Close lets go of the page map.
func (g *Pages) Close() error { return g.file.Close() }

// Touched is how many bytes between start and end are in memory or swapped out. Pages that only read zeros are not counted
// where the kernel tells them apart (6.7).
func (g *Pages) Touched(start, end uint64) (uint64, error) {
	start, end = start&^(g.size-1), (end+g.size-1)&^(g.size-1)
	if g.scan {
		bytes, err := g.scanTouched(start, end)
		if !errors.Is(err, unix.ENOTTY) {
			return bytes, err
		}
		g.scan = false
	}
	return g.readTouched(start, end)
}

// struct pm_scan_arg and struct page_region, include/uapi/linux/fs.h.
type scanArgument struct {
	size, flags, start, end, walkEnd, vector, vectorLength, maxPages uint64
	categoryInverted, categoryMask, categoryAnyOfMask, returnMask    uint64
}

type pageRegion struct{ start, end, categories uint64 }

const (
	pagemapScan   = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsZero    = 1 << 5
)

func (g *Pages) scanTouched(start, end uint64) (uint64, error) {
	var touched uint64
	for start < end {
		argument := scanArgument{
			start: start, end: end,
			vector: uint64(uintptr(unsafe.Pointer(&g.regions[0]))), vectorLength: uint64(len(g.regions)),
			categoryInverted: pageIsZero, categoryMask: pageIsZero, // not a page of zeros,
			categoryAnyOfMask: pageIsPresent | pageIsSwapped, // and one of these
			returnMask:        pageIsPresent | pageIsSwapped,
		}
		argument.size = uint64(unsafe.Sizeof(argument))
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, g.file.Fd(), pagemapScan, uintptr(unsafe.Pointer(&argument)))
		if errno != 0 {
			return touched, fmt.Errorf("scan pagemap: %w", errno)
		}
		for _, r := range g.regions[:n] {
			touched += r.end - r.start
		}
		if argument.walkEnd <= start {
			break
		}
		start = argument.walkEnd
	}
	return touched, nil
}

// An entry of pagemap has 8 bytes; bits 63 and 62 say present and swapped (Documentation/admin-guide/mm/pagemap.rst).
const (
	entrySize    = 8
	entryTouched = 3 << 62
	readEntries  = 32 << 10
)

func (g *Pages) readTouched(start, end uint64) (uint64, error) {
	if g.buffer == nil {
		g.buffer = make([]byte, readEntries*entrySize)
	}
	var touched uint64
	for start < end {
		want := min((end-start)/g.size, readEntries) * entrySize
		n, err := g.file.ReadAt(g.buffer[:want], int64(start/g.size*entrySize))
		if n < entrySize {
			return touched, fmt.Errorf("read pagemap: %w", err)
		}
		n -= n % entrySize
		for i := 0; i < n; i += entrySize {
			if binary.LittleEndian.Uint64(g.buffer[i:])&entryTouched != 0 {
				touched += g.size
			}
		}
		start += uint64(n) / entrySize * g.size
	}
	return touched, nil
}

// Scans reports whether the kernel skips untouched memory by itself, so that large reservations cost nothing.
func (g *Pages) Scans() bool { return g.scan }

// A PageRun is a stretch of pages of a process that hold memory.
type PageRun struct {
	Start, End uint64
	// Swapped out; else in memory.
	Swapped bool
	// File: of a file or shared memory, not private to the process. Huge: mapped as one huge page each.
	File, Huge bool
}

// Runs appends the pages between start and end that hold memory, in order. Pages that only read zeros are left out where
// the kernel tells them apart (6.7).
func (g *Pages) Runs(to []PageRun, start, end uint64) ([]PageRun, error) { return to, nil }

// Shared appends the stretches between start and end that are in memory and mapped by another process as well.
func (g *Pages) Shared(to []PageRun, start, end uint64) ([]PageRun, error) { return to, nil }
