package unwind

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/cache"
)

const (
	maxCacheBytes = 256 << 20
	// minCachedWords is the size of a table that takes longer to make than to find.
	minCachedWords = 512
	// headBytes of a file are in the name of its entry: its headers, and mostly its build ID.
	headBytes = 4 << 10
)

// A Cache keeps tables on disk. A nil Cache keeps none.
//
// The name of an entry finds it, and proves nothing: a process may map a file of its own with the
// size, the headers and the build ID of another one. So an entry has the list of all pieces of the
// file that its table was made of, with a digest of their contents. It serves for a file whose pieces
// have the same digest, and for no other. Reading and hashing them takes a twentieth of the time that
// the parser takes.
type Cache struct {
	folder *cache.Folder
	// program identifies the code that makes tables.
	program  []byte
	minWords int // of a table that is kept
}

// OpenCache opens the cache in a folder as cache.Open does, and returns nil as it does.
func OpenCache(path string) *Cache {
	if path == "" {
		return nil
	}
	program := programIdentity()
	if program == nil {
		return nil
	}
	folder := cache.Open(path, maxCacheBytes)
	if folder == nil {
		return nil
	}
	return &Cache{folder, program, minCachedWords}
}

// programIdentity is another one for each build and installation of this program: no table of an
// older version is used, and no number has to be changed with the code.
func programIdentity() []byte {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &stat); err != nil {
		return nil
	}

	var b []byte
	for _, n := range []int64{stat.Size, stat.Mtim.Nano(), stat.Ctim.Nano()} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b = append(b, info.String()...)
	}
	return b
}

// Close closes the cache.
func (c *Cache) Close() {
	if c != nil {
		c.folder.Close()
	}
}

// Build is the function Build, but takes a table that it has made before, of a file that reads the
// same. cached reports that it has.
func (c *Cache) Build(r io.ReaderAt, size int64, path string) (table *Table, cached bool, err error) {
	if c == nil {
		table, err = Build(r, size, path)
		return table, false, err
	}

	size = max(size, 0)
	name := c.name(r, size, isLoader(path))
	if table := decode(c.folder.Load(name), r, size); table != nil {
		return table, true, nil
	}

	in := newFileReader(r, size)
	table, err = buildFrom(in, size, path)
	if err == nil && len(table.Words) >= c.minWords && !in.unsure {
		c.folder.Store(name, encode(table, in), wordBytes(table.Words))
	}
	return table, false, err
}

// name returns the name of the entry of a file.
func (c *Cache) name(r io.ReaderAt, size int64, isLoader bool) string {
	head := make([]byte, headBytes)
	n, _ := r.ReadAt(head, 0) // Build says why
	loader := byte(0)
	if isLoader {
		loader = 1
	}

	h := sha256.New()
	h.Write(c.program)
	h.Write(binary.LittleEndian.AppendUint64([]byte{loader}, uint64(size)))
	h.Write(head[:n])
	return hex.EncodeToString(h.Sum(nil))
}

// An entryHeader begins an entry. The pieces and the words of the table follow.
type entryHeader struct {
	Digest        [sha256.Size]byte // of fileReader
	Base          uint64
	Rows, Rules   uint32
	Pieces, Words uint32
}

// These are multiples of 8, so that the words of a table can stay where they were read to.
const (
	entryHeaderBytes = sha256.Size + 24
	pieceBytes       = 16
)

// encode returns an entry without the words of its table.
func encode(t *Table, in *fileReader) []byte {
	head := entryHeader{
		Base: t.Base, Rows: uint32(t.Rows), Rules: uint32(t.Rules),
		Pieces: uint32(len(in.pieces)), Words: uint32(len(t.Words)),
	}
	in.digest.Sum(head.Digest[:0])

	b := make([]byte, 0, entryHeaderBytes+pieceBytes*len(in.pieces))
	b, _ = binary.Append(b, binary.LittleEndian, head) // a fixed size
	for _, p := range in.pieces {
		b = binary.LittleEndian.AppendUint64(b, uint64(p.offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(p.length))
	}
	return b
}

// decode returns the table of an entry, if it is one of the file r, and nil otherwise. The table has
// the memory of the entry.
func decode(entry []byte, r io.ReaderAt, size int64) *Table {
	var head entryHeader
	n, err := binary.Decode(entry, binary.LittleEndian, &head)
	if err != nil || head.Pieces > maxPieces || head.Words > maxWords ||
		len(entry)-n != pieceBytes*int(head.Pieces)+8*int(head.Words) {
		return nil
	}

	pieces, words := entry[n:n+pieceBytes*int(head.Pieces)], entry[n+pieceBytes*int(head.Pieces):]
	if !bytes.Equal(digest(pieces, r, size), head.Digest[:]) {
		return nil
	}

	first := unsafe.Pointer(unsafe.SliceData(words))
	t := &Table{
		Base: head.Base, Rows: int(head.Rows), Rules: int(head.Rules),
		Words: unsafe.Slice((*uint64)(first), head.Words),
	}
	if uintptr(first)%8 != 0 || !t.isValid() {
		return nil
	}
	return t
}

// digest reads the encoded pieces of a file, with the limits of the parser, and returns their digest;
// nil: it cannot read them.
func digest(pieces []byte, r io.ReaderAt, size int64) []byte {
	in := newFileReader(r, size)
	common := buffers.Get().(*[commonBytes]byte)
	defer buffers.Put(common)
	buffer := common[:]
	err := recoverPanics(func() error {
		for ; len(pieces) > 0; pieces = pieces[pieceBytes:] {
			offset := int64(binary.LittleEndian.Uint64(pieces))
			length := binary.LittleEndian.Uint64(pieces[8:])
			if length > uint64(max(in.left, 0)) {
				return errTooMuch
			}
			if length > uint64(len(buffer)) {
				buffer = make([]byte, length)
			}

			if _, err := in.ReadAt(buffer[:length], offset); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		return nil
	})
	if err != nil || in.unsure {
		return nil
	}
	return in.digest.Sum(nil)
}

// commonBytes is the size of most pieces: the parser's buffer.
const commonBytes = 64 << 10

var buffers = sync.Pool{New: func() any { return new([commonBytes]byte) }}
