package hostile

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of struct pm_scan_arg, <linux/fs.h>: where the address and the length of the vector of regions are.
const scanVector, scanVectorLength = 40, 48

const (
	pagemapScanCall = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)
	regionBytes     = 24         // of struct page_region
)

// pagemapScan makes the ioctl of a file pagemap. It sets the vector in the argument to the regions.
// The argument comes back one word further on, behind the result.
func pagemapScan(fd int, argument, regions []byte) (int, error) {
	own := make([]byte, scanBytes)
	copy(own, argument)
	if len(regions) > 0 {
		vector := uint64(uintptr(unsafe.Pointer(&regions[0])))
		binary.NativeEndian.PutUint64(own[scanVector:], vector)
	}
	binary.NativeEndian.PutUint64(own[scanVectorLength:], uint64(len(regions)/regionBytes))

	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pagemapScanCall,
		uintptr(unsafe.Pointer(&own[0])))
	runtime.KeepAlive(own)
	copy(argument[8:8+scanBytes], own)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
