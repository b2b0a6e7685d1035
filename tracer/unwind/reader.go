package unwind

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
)

const (
	extraReadBytes = 32 << 20 // bytes that are read besides frames: headers, names, common entries
	minReadCost    = 1 << 10  // bytes that one read counts for at least
	maxPieces      = 1 << 17
)

var errTooMuch = errors.New("takes more reading than any real file")

// A fileReader is all that the parser sees of a file. It limits how much is read: the parser reads
// entries that others refer to repeatedly, and does not notice the end of a file that is shorter
// than its headers say.
//
// It also keeps which pieces were read, and a digest of all bytes that the parser got. A file whose
// pieces have the same digest leads the parser to the same table.
type fileReader struct {
	r    io.ReaderAt
	left int64 // bytes

	pieces []piece // in the order of the reads
	digest hash.Hash
	// unsure is set where a read has failed, which it may not do again, or there are too many.
	unsure bool
}

// A piece of a file was asked for by one read.
type piece struct {
	offset int64
	length uint32
}

// newFileReader is for one table of a file of size bytes.
func newFileReader(r io.ReaderAt, size int64) *fileReader {
	return &fileReader{r: r, left: extraReadBytes + 2*min(size, maxFrameBytes), digest: sha256.New()}
}

// ReadAt panics with errTooMuch once the limit is reached, because the parser goes on after errors.
func (in *fileReader) ReadAt(p []byte, offset int64) (int, error) {
	in.left -= max(int64(len(p)), minReadCost)
	if in.left < 0 {
		panic(errTooMuch)
	}

	n, err := in.r.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) || len(in.pieces) == maxPieces {
		in.unsure = true
	}
	if in.unsure {
		return n, err
	}

	in.pieces = append(in.pieces, piece{offset, uint32(len(p))}) // left is below 2^32
	var head [20]byte
	binary.LittleEndian.PutUint64(head[:], uint64(offset))
	binary.LittleEndian.PutUint32(head[8:], uint32(len(p)))
	binary.LittleEndian.PutUint64(head[12:], uint64(n)) // less at the end of the file
	in.digest.Write(head[:])
	in.digest.Write(p[:n])
	return n, err
}
