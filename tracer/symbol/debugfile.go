package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"sync"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/mem"
)

// debugDir holds the debug files of a system.
const debugDir = "/usr/lib/debug"

// DebugFiles finds the separate debug files of a session's programs. The owner of a program can have
// any file checked for being its debug file, which takes to read it: DebugFiles reads each file for
// its checksum once, and maxLinked bytes in all, with the MiniDebugInfo that it unpacks. It is safe
// for concurrent use.
type DebugFiles struct {
	mu   sync.Mutex
	left int64 // bytes that may still be read
	sums map[checkedFile]uint32
}

// A checkedFile is a file whose checksum is known.
type checkedFile struct {
	device, inode uint64
	size          int64 // bytes
}

// NewDebugFiles returns a DebugFiles that has read nothing.
func NewDebugFiles() *DebugFiles {
	return &DebugFiles{left: maxLinked, sums: make(map[checkedFile]uint32)}
}

// A debugFile is a file with the .symtab that was stripped from another.
type debugFile struct {
	*hostile.File
	image *image
}

// A debugPath is where a debug file may lie.
type debugPath struct {
	root, path string
	checksum   bool // has to match the one in .gnu_debuglink
}

// find opens the debug file of f, or unpacks its MiniDebugInfo. binary is where the process sees the
// file and root the process's root directory, "" for none.
func (d *DebugFiles) find(f *File, binary, root string) {
	link, sum, err := f.image.debugLink()
	f.problem(err)
	for _, p := range debugPaths(f.image.buildID, link, binary, root) {
		file, err := d.open(p, f.image.buildID, sum)
		if err == nil {
			f.debug = file
			return
		}

		if !errors.Is(err, fs.ErrNotExist) {
			f.problem(fmt.Errorf("read debug file %s in %s: %w", p.path, p.root, err))
		}
	}

	f.mini, err = d.miniDebug(f.image)
	f.problem(err)
}

// debugPaths lists where gdb looks for debug files, the host's first:
// https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html
func debugPaths(buildID, link, binary, root string) []debugPath {
	var paths []debugPath
	add := func(root, name string, checksum bool) {
		if name != binary { // a stripped file may name itself
			paths = append(paths, debugPath{root, name, checksum})
		}
	}

	dir := path.Dir(path.Clean("/" + binary))
	for _, r := range []string{"/", root} {
		if r == "" {
			continue
		}

		if buildID != "" {
			add(r, debugDir+"/.build-id/"+buildID[:2]+"/"+buildID[2:]+".debug", false)
		}

		if link == "" {
			continue
		}

		if r == root {
			add(r, path.Join(dir, link), true)
			add(r, path.Join(dir, ".debug", link), true)
		}

		add(r, path.Join(debugDir, dir, link), true)
	}

	return paths
}

// open opens the debug file at p. Its build ID has to be buildID, and with
// p.checksum the CRC-32 of its bytes sum.
func (d *DebugFiles) open(p debugPath, buildID string, sum uint32) (_ *debugFile, err error) {
	file, err := hostile.OpenInRoot(p.root, p.path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()

	image, err := newImage(file, file.Size())
	if err != nil {
		return nil, err
	}
	if image.buildID != buildID {
		return nil, fmt.Errorf("build ID %q is not %q", image.buildID, buildID)
	}
	if image.symtab.size() == 0 {
		return nil, errors.New("no .symtab")
	}

	if p.checksum {
		got, err := d.checksum(file)
		if err != nil {
			return nil, err
		}
		if got != sum {
			return nil, fmt.Errorf("checksum %08x is not %08x", got, sum)
		}
	}

	return &debugFile{file, image}, nil
}

// debugLink reads the section .gnu_debuglink: the name of the debug file, "" if
// there is none, and its checksum.
func (m *image) debugLink() (name string, sum uint32, err error) {
	if m.link.size == 0 {
		return "", 0, nil
	}

	buf, err := m.bytes(m.link, maxLink)
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", debugLinkSection, err)
	}

	text, _, found := bytes.Cut(buf, []byte{0})
	at := mem.AlignUp(uint64(len(text))+1, 4)
	if !found || at+4 > uint64(len(buf)) {
		return "", 0, fmt.Errorf("read %s: truncated", debugLinkSection)
	}

	name = string(text)
	if name == "." || name == ".." || path.Base(name) != name {
		return "", 0, fmt.Errorf("read %s: %q is not a file name", debugLinkSection, name)
	}

	return name, binary.LittleEndian.Uint32(buf[at:]), nil
}

// spend takes bytes from those that may still be read. The caller holds d.mu.
func (d *DebugFiles) spend(bytes int64) error {
	if bytes > d.left {
		return fmt.Errorf("%d bytes exceed the %d that are left of %d for a trace",
			bytes, d.left, maxLinked)
	}
	d.left -= bytes
	return nil
}

// checksum returns the CRC-32 of a file.
func (d *DebugFiles) checksum(file *hostile.File) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	key := checkedFile{file.Device, file.Inode, file.Size()}
	if sum, ok := d.sums[key]; ok {
		return sum, nil
	}
	if err := d.spend(key.size); err != nil { // also of a file that cannot be read to its end
		return 0, err
	}
	hash := crc32.NewIEEE()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, key.size)); err != nil {
		return 0, err
	}
	d.sums[key] = hash.Sum32()
	return d.sums[key], nil
}
