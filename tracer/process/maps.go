package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A Mapping is one VMA: a line of /proc/PID/maps.
type Mapping struct {
	// Start and End bound the addresses, End excluded.
	Start, End uint64

	// Offset of Start in the file, in bytes.
	Offset uint64

	// Device and Inode identify the file; both are 0 for memory without one.
	Device, Inode uint64

	// Path as the process sees it, printable, with " (deleted)" if the kernel adds it; "[heap]" and
	// the like; empty for anonymous memory.
	Path string

	Read, Write, Execute, Shared bool

	// Tmpfs is set where the file of a shared mapping is in memory, on a tmpfs. The kernel cannot
	// drop its pages, as it can drop the pages of other files.
	Tmpfs bool
}

// Len is the size in bytes.
func (m Mapping) Len() uint64 { return m.End - m.Start }

// IsFile reports whether the mapping is backed by a file. Shared memory has one, too.
func (m Mapping) IsFile() bool { return m.Inode != 0 }

// A FileID identifies a mapped file, whatever its names. The zero value means no file.
type FileID struct{ Device, Inode uint64 }

// File is the identity of the file behind the mapping.
func (m Mapping) File() FileID { return FileID{m.Device, m.Inode} }

// Maps reads the memory map in address order. The error wraps os.ErrNotExist if the process has
// exited.
func (p *Process) Maps() ([]Mapping, error) {
	raw, err := p.readLocking("maps", maxMapsBytes)
	if err != nil {
		return nil, err
	}
	if len(raw) == maxMapsBytes {
		return nil, fmt.Errorf("read maps: more than %d MiB", maxMapsBytes>>20)
	}
	if len(raw) == 0 || !p.Alive() {
		return nil, fmt.Errorf("read maps: empty: %w", os.ErrNotExist)
	}
	maps, err := ParseMaps(raw)
	p.devices.mark(maps, &p.procFiles)
	return maps, err
}

// ParseMaps parses the text of /proc/PID/maps (proc_pid_maps(5)), without Tmpfs. The kernel writes it in pieces: a
// mapping that grows between two of them, such as the heap, is there twice, and the later line is
// right.
func ParseMaps(raw []byte) ([]Mapping, error) {
	var maps []Mapping
	for line := range bytes.Lines(raw) {
		m, err := parseMapping(strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return nil, fmt.Errorf("parse maps line %d: %w", len(maps)+1, err)
		}
		for n := len(maps); n > 0 && maps[n-1].End > m.Start; n = len(maps) {
			if maps[n-1].Start >= m.Start {
				maps = maps[:n-1]
				continue
			}
			maps[n-1].End = m.Start
		}
		maps = append(maps, m)
	}
	return maps, nil
}

var errMapsFormat = errors.New("unknown format")

func parseMapping(line string) (Mapping, error) {
	// start-end perms offset major:minor inode path
	var words [5]string
	rest := line
	for i := range words {
		words[i], rest, _ = strings.Cut(rest, " ")
	}
	permissions := words[1]
	start, end, _ := strings.Cut(words[0], "-")
	major, minor, _ := strings.Cut(words[3], ":")

	var numbers [6]uint64
	for i, field := range []struct {
		text string
		base int
	}{{start, 16}, {end, 16}, {words[2], 16}, {major, 16}, {minor, 16}, {words[4], 10}} {
		n, err := strconv.ParseUint(field.text, field.base, 64)
		if err != nil {
			return Mapping{}, errMapsFormat
		}
		numbers[i] = n
	}
	if len(permissions) != 4 || numbers[0] >= numbers[1] {
		return Mapping{}, errMapsFormat
	}

	return Mapping{
		Start: numbers[0], End: numbers[1], Offset: numbers[2],
		Device: unix.Mkdev(uint32(numbers[3]), uint32(numbers[4])), Inode: numbers[5],
		Path: growth.Printable(strings.TrimLeft(rest, " ")),
		Read: permissions[0] == 'r', Write: permissions[1] == 'w',
		Execute: permissions[2] == 'x', Shared: permissions[3] == 's',
	}, nil
}

// OpenMapped opens the very file behind a mapping for reading, whatever the mount namespace or chroot
// of the process, and even if the file was deleted. It refuses anything but regular files: opening a
// device may have an effect on it.
func (p *Process) OpenMapped(m Mapping) (*hostile.File, error) {
	path := fmt.Sprintf("map_files/%x-%x", m.Start, m.End)
	f, err := hostile.Open(p.living(p.PID), path, 0, 0)
	switch {
	case errors.Is(err, unix.EPERM): // proc_map_files_get_link of the kernel
		return nil, fmt.Errorf("open %s: %w (run as root or grant CAP_CHECKPOINT_RESTORE)", m.Path, err)
	case errors.Is(err, unix.EACCES): // the folder belongs to the process's user
		return nil, fmt.Errorf("open %s: %w (run as root or grant CAP_DAC_READ_SEARCH)", m.Path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", m.Path, p.noteStall(err))
	}
	return f, nil
}

// OpenFile opens a regular file by its path as the process sees it, whatever its mount namespace or
// chroot.
func (p *Process) OpenFile(path string) (*hostile.File, error) {
	root, err := os.OpenFile(p.path("root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root directory of pid %d: %w", p.PID, err)
	}
	defer root.Close()

	f, err := hostile.Open(root, path, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", growth.Printable(path), p.noteStall(err))
	}
	return f, nil
}

// OpenProgram opens the file that the process executes, like OpenMapped.
func (p *Process) OpenProgram() (*hostile.File, error) {
	f, err := hostile.Open(p.living(p.PID), "exe", 0, 0)
	if err != nil {
		return nil, fmt.Errorf("open the program of pid %d: %w", p.PID, p.noteStall(err))
	}
	return f, nil
}

// Hold keeps an opened file until Close, and returns a path under which the kernel opens that very
// file until then. The path of its mapping would lead to the present mapping there.
func (p *Process) Hold(f *hostile.File) (path hostile.HeldPath, err error) {
	p.heldMu.Lock()
	defer p.heldMu.Unlock()

	for _, h := range p.held {
		if h.Device == f.Device && h.Inode == f.Inode {
			return h.Path(), nil
		}
	}
	own, err := f.Duplicate()
	if err != nil {
		return path, err
	}
	p.held = append(p.held, own)
	return own.Path(), nil
}

// FindMapping returns the mapping that contains an address. maps must be in address order.
func FindMapping(maps []Mapping, address uint64) (Mapping, bool) {
	i := sort.Search(len(maps), func(i int) bool { return maps[i].End > address })
	if i == len(maps) || maps[i].Start > address {
		return Mapping{}, false
	}
	return maps[i], true
}
