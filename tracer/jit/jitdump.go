package jit

import (
	"bytes"
	"encoding/binary"
	"path"
	"regexp"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
)

// Records of a jitdump, and their sizes without texts and code:
// https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jitdump-specification.txt
const (
	dumpMagic       = 0x4a695444
	dumpHeaderBytes = 40
	recordBytes     = 16 // before each record: id, total size, time

	recordLoad  = 0
	recordMove  = 1
	recordDebug = 2

	loadBytes  = 40 // pid, tid, vma, address, size, index
	moveBytes  = 48 // pid, tid, vma, old address, address, size, index
	debugBytes = 16 // address, entries
	entryBytes = 16 // address, line, discriminator
)

// A dump is a jitdump that is being read.
type dump struct {
	offset int64 // of the next record; 0: of the header
	failed bool
	byCode map[uint64]function // by the runtime's index of its code, for moves
	source map[uint64]source   // by address, of code that is loaded next
}

func newDump() *dump {
	return &dump{byCode: make(map[uint64]function), source: make(map[uint64]source)}
}

var dumpName = regexp.MustCompile(`^jit-[0-9]+\.dump$`)

// isDump reports whether a mapping is the mark by which a runtime shows its jitdump.
func isDump(m process.Mapping) bool { return m.IsFile() && dumpName.MatchString(path.Base(m.Path)) }

// checkDump reads the records that a jitdump has more than before.
func (n *Names) checkDump(m process.Mapping) {
	id := m.File()
	d := n.dumps[id]
	if d == nil && len(n.dumps) < maxDumps {
		d = newDump()
		n.dumps[id] = d
	}
	if d == nil || d.failed {
		return
	}

	file, err := n.process.OpenMapped(m)
	if err != nil {
		return
	}
	defer file.Close()
	n.readDump(d, file)
}

func (n *Names) readDump(d *dump, file *hostile.File) {
	since := n.checks
	if d.offset == 0 {
		since = 0
		header := make([]byte, dumpHeaderBytes)
		_, err := file.ReadAt(header, 0)
		d.failed = err != nil || binary.LittleEndian.Uint32(header) != dumpMagic
		d.offset = max(dumpHeaderBytes, int64(binary.LittleEndian.Uint32(header[8:])))
	}
	for !d.failed && d.offset < file.Size() && !n.isFull() {
		if !n.readRecords(d, file, since) {
			return
		}
	}
}

// readRecords reads the whole records of the next piece of a jitdump; false: the runtime is writing
// the next one. The code of a record may be larger than a piece.
func (n *Names) readRecords(d *dump, file *hostile.File, since int) (isMore bool) {
	piece := make([]byte, min(chunkBytes, file.Size()-d.offset))
	read, _ := file.ReadAt(piece, d.offset)
	piece = piece[:read]
	n.read += int64(read)

	for len(piece) >= recordBytes {
		id, size := binary.LittleEndian.Uint32(piece), binary.LittleEndian.Uint32(piece[4:])
		isWhole := int(size) <= len(piece)

		if size < recordBytes {
			d.failed = true
			return false
		}
		if !isWhole && isMore || d.offset+int64(size) > file.Size() {
			return isMore
		}

		n.record(d, id, piece[recordBytes:min(int(size), len(piece))], since)
		d.offset += int64(size)
		isMore = true
		piece = piece[min(int(size), len(piece)):]
	}
	return isMore
}

// record keeps the data of a record.
func (n *Names) record(d *dump, id uint32, body []byte, since int) {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(body[at:]) }
	switch {
	case id == recordDebug && len(body) > debugBytes+entryBytes:
		if len(d.source) >= maxFunctions {
			return
		}

		entry := body[debugBytes:]
		if name, ok := text(entry[entryBytes:]); ok {
			number := binary.LittleEndian.Uint32(entry[8:])
			d.source[word(0)] = source{name, int(int32(number))}
			n.text += len(name)
		}

	case id == recordLoad && len(body) > loadBytes:
		name, ok := text(body[loadBytes:])
		if !ok {
			return
		}

		at := word(16)
		f := function{
			start: at, end: at + word(24), name: name, source: d.source[at],
			check: n.checks, since: since,
		}

		delete(d.source, at)
		n.add(f)
		if len(d.byCode) < maxFunctions {
			d.byCode[word(32)] = f
		}

	case id == recordMove && len(body) >= moveBytes:
		f, ok := d.byCode[word(40)]
		if !ok || f.start != word(16) {
			return
		}

		f.start, f.end, f.check, f.since = word(24), word(24)+word(32), n.checks, since
		d.byCode[word(40)] = f
		n.add(f)
	}
}

// text reads a text that ends with a zero byte.
func text(raw []byte) (name string, ok bool) {
	end := bytes.IndexByte(raw[:min(len(raw), 4096)], 0)
	if end <= 0 {
		return "", false
	}
	return printable(string(raw[:end])), true
}
