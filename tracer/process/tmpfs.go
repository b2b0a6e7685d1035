package process

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
)

const (
	maxMountinfoBytes = 4 << 20
	maxKnownDevices   = 1024 // a process with a user namespace can mount as many as it likes
)

// knownDevices are the devices of mapped files, and whether each is a tmpfs.
type knownDevices struct {
	mu      sync.Mutex
	isTmpfs map[uint64]bool
}

// mark sets Tmpfs of the mappings. The mounts are read when there is a new device. Without them no
// mapping is marked.
func (known *knownDevices) mark(maps []Mapping, files *procFiles) {
	known.mu.Lock()
	defer known.mu.Unlock()

	var mounted map[uint64]bool
	for i := range maps {
		m := &maps[i]
		if !m.Shared || !m.IsFile() {
			continue
		}

		isTmpfs, isKnown := known.isTmpfs[m.Device]
		if !isKnown {
			if mounted == nil {
				mounted = files.tmpfsMounts()
			}
			if known.isTmpfs == nil || len(known.isTmpfs) >= maxKnownDevices {
				known.isTmpfs = make(map[uint64]bool)
			}
			isTmpfs = mounted[m.Device]
			known.isTmpfs[m.Device] = isTmpfs
		}
		m.Tmpfs = isTmpfs
	}
}

// tmpfsMounts returns the devices of the tmpfs that the process sees.
func (f *procFiles) tmpfsMounts() map[uint64]bool {
	file, err := f.open("mountinfo")
	if err != nil {
		return map[uint64]bool{}
	}
	defer file.Close()

	raw, err := hostile.OfProcess(file).ReadAll(maxMountinfoBytes)
	if err != nil {
		return map[uint64]bool{}
	}
	return parseTmpfsMounts(raw)
}

// parseTmpfsMounts finds the devices of tmpfs in the text of /proc/PID/mountinfo
// (proc_pid_mountinfo(5)). It skips lines that are of another form.
func parseTmpfsMounts(raw []byte) map[uint64]bool {
	devices := make(map[uint64]bool)
	for line := range bytes.Lines(raw) {
		mount, filesystem, _ := strings.Cut(string(line), " - ")
		if kind, _, _ := strings.Cut(filesystem, " "); kind != "tmpfs" {
			continue
		}
		// number, parent, major:minor, ...
		fields := strings.SplitN(mount, " ", 4)
		if len(fields) < 4 {
			continue
		}
		if device, err := parseDevice(fields[2]); err == nil {
			devices[device] = true
		}
	}
	return devices
}

// parseDevice parses "0:25".
func parseDevice(text string) (uint64, error) {
	major, minor, _ := strings.Cut(text, ":")
	var numbers [2]uint32
	for i, part := range []string{major, minor} {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("parse device: %w", err)
		}
		numbers[i] = uint32(n)
	}
	return unix.Mkdev(numbers[0], numbers[1]), nil
}
