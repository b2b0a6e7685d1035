package symbol

import (
	"errors"
	"io"
	"sync"
)

const (
	blockBytes = 4 << 10
	keptBlocks = 16
	maxSmall   = 1 << 10 // bytes of a read that is made by blocks
)

// A blockReader makes small reads of a file by blocks, and keeps some: tables are searched repeatedly,
// a few bytes at a time. It is safe for concurrent use.
type blockReader struct {
	r    io.ReaderAt
	mu   sync.Mutex
	kept [keptBlocks]block // by the remainder of the index
}

// A block is the contents of a file from index·blockBytes on; empty: it was not read.
type block struct {
	index   int64
	content []byte
}

// ReadAt implements io.ReaderAt.
func (b *blockReader) ReadAt(to []byte, offset int64) (read int, err error) {
	if len(to) > maxSmall || offset < 0 {
		return b.r.ReadAt(to, offset)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	for read < len(to) {
		at := offset + int64(read)
		content, err := b.block(at / blockBytes)
		if err != nil {
			return read, err
		}

		inBlock := int(at % blockBytes)
		if inBlock >= len(content) {
			return read, io.EOF
		}
		read += copy(to[read:], content[inBlock:])
	}
	return read, nil
}

// block returns a block, valid until the next call. It is shorter where the file ends.
func (b *blockReader) block(index int64) ([]byte, error) {
	kept := &b.kept[index%keptBlocks]
	if kept.index == index && len(kept.content) > 0 {
		return kept.content, nil
	}

	content := kept.content[:0]
	if cap(content) == 0 {
		content = make([]byte, 0, blockBytes)
	}
	n, err := b.r.ReadAt(content[:blockBytes], index*blockBytes)
	*kept = block{index: index, content: content[:n]}
	if err != nil && !errors.Is(err, io.EOF) {
		kept.content = content[:0] // it is read again
		return nil, err
	}
	return kept.content, nil
}
