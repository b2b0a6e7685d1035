package symbol

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// TestBlockReader compares reads of any place and size with bytes.Reader, which keeps the file whole.
func TestBlockReader(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, keptBlocks*blockBytes*2+blockBytes/3)
	for i := range data {
		data[i] = byte(r.Uint32())
	}

	file := bytes.NewReader(data)
	blocks := &blockReader{r: file}
	for range 10_000 {
		at := r.Int64N(int64(len(data)) + 2*blockBytes)
		got, want := make([]byte, r.IntN(2*maxSmall)+1), make([]byte, 2*maxSmall)
		want = want[:len(got)]
		n, err := blocks.ReadAt(got, at)
		wantN, wantErr := file.ReadAt(want, at)
		if n != wantN || !errors.Is(err, wantErr) || !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("%d bytes at %d: %d, %v; want %d, %v", len(got), at, n, err, wantN, wantErr)
		}
	}
}

// TestBlockReaderError: a block that could not be read is read again.
func TestBlockReaderError(t *testing.T) {
	failing := &failingReader{Reader: bytes.NewReader(make([]byte, 2*blockBytes)), fails: 1}
	blocks := &blockReader{r: failing}
	var word [4]byte
	if _, err := blocks.ReadAt(word[:], 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want the error of the file", err)
	}
	if n, err := blocks.ReadAt(word[:], 0); n != len(word) || err != nil {
		t.Errorf("%d bytes, %v after an error; want all", n, err)
	}
}

type failingReader struct {
	*bytes.Reader
	fails int // reads to fail
}

func (f *failingReader) ReadAt(to []byte, offset int64) (int, error) {
	if f.fails > 0 {
		f.fails--
		return 0, io.ErrUnexpectedEOF
	}
	return f.Reader.ReadAt(to, offset)
}
