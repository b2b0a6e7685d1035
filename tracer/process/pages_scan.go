package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// struct pm_scan_arg and struct page_region, include/uapi/linux/fs.h.
type scanArgument struct {
	size, flags, start, end, walkEnd, vector, vectorLength, maxPages uint64
	categoryInverted, categoryMask, categoryAnyOfMask, returnMask    uint64
}

type pageRegion struct{ start, end, categories uint64 }

const (
	pagemapScan   = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsZero    = 1 << 5
	pageIsHuge    = 1 << 6
	pageIsGuard   = 1 << 8 // 6.15

	inPageTables = pageIsPresent | pageIsSwapped | pageIsHuge

	maxRegions = 512
	// maxScan bounds the pages found by one call, in bytes, and so how long it holds the process's mmap lock for reading:
	// some 1.5 ms.
	maxScan = 1 << 30
)

// scanRuns asks for the runs between start and end, whole pages, by the ioctl PAGEMAP_SCAN
// (Documentation/admin-guide/mm/pagemap.rst). The error wraps unix.ENOTTY if the kernel does not have it.
//
// To tell what is of a file, the kernel looks at each page; the rest is in the page tables, which are read
// five times as fast.
func (g *Pages) scanRuns(start, end, categories uint64, j *joiner) error {
	for start < end {
		n, next, err := g.scanSome(start, end, categories)
		if errors.Is(err, unix.ESRCH) {
			err = os.ErrNotExist
		}
		if err != nil {
			return fmt.Errorf("scan pagemap: %w", err)
		}
		for _, r := range g.regions[:n] {
			err := j.add(PageRun{
				Start: r.start, End: r.end,
				Swapped: r.categories&pageIsPresent == 0, File: r.categories&pageIsFile != 0, Huge: r.categories&pageIsHuge != 0,
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
	if err := g.gone(); err != nil { // older kernels find no pages then, without an error
		return fmt.Errorf("scan pagemap: %w", err)
	}
	return nil
}

// scanSome makes one call: the number of regions found, and where the kernel has stopped.
func (g *Pages) scanSome(start, end, categories uint64) (n int, next uint64, err error) {
	argument := scanArgument{
		start: start, end: end, maxPages: maxScan / g.size,
		vector: uint64(uintptr(unsafe.Pointer(&g.regions[0]))), vectorLength: uint64(len(g.regions)),
		categoryInverted: g.unwanted, categoryMask: g.unwanted, // none of these,
		categoryAnyOfMask: pageIsPresent | pageIsSwapped, // and one of those
		returnMask:        categories,
	}
	argument.size = uint64(unsafe.Sizeof(argument))
	found, _, errno := unix.Syscall(unix.SYS_IOCTL, g.file.Fd(), pagemapScan, uintptr(unsafe.Pointer(&argument)))
	runtime.KeepAlive(g)
	if errors.Is(errno, unix.EINVAL) && g.unwanted&pageIsGuard != 0 {
		g.unwanted &^= pageIsGuard // before 6.15
		return g.scanSome(start, end, categories)
	}
	if errno != 0 {
		return 0, 0, errno
	}
	return min(int(found), len(g.regions)), argument.walkEnd, nil
}
