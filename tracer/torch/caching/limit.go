package caching

import (
	"errors"

	"github.com/allocscope/allocscope/tracer/mem"
)

// errLimit ends the reading of a process whose memory leads on and on.
var errLimit = errors.New("its caching allocator takes too much to read")

// Limits of one reading. A process with 300,000 blocks takes a third of the bytes.
const (
	maxReads     = 1 << 14
	maxReadBytes = 256 << 20
	maxSteps     = 4 * maxBlocks // from block to block by links, before segments are left as they are
)

// limited is the memory of a process, of which no more than the limits can be read. All loops over
// the contents of memory read some of it, or take steps, so it bounds their work together.
type limited struct {
	memory              mem.Reader
	reads, bytes, steps int // that are left
}

func newLimited(memory mem.Reader) *limited {
	return &limited{memory: memory, reads: maxReads, bytes: maxReadBytes, steps: maxSteps}
}

// Peek is as in mem.Reader. It returns errLimit where that would be too much.
func (l *limited) Peek(addresses []uint64, size int) ([][]byte, error) {
	l.reads--
	l.bytes -= len(addresses) * size
	if l.reads < 0 || l.bytes < 0 {
		return nil, errLimit
	}

	return l.memory.Peek(addresses, size)
}

// canRepeat reports whether enough is left to read something again.
func (l *limited) canRepeat() bool {
	return l.reads > maxReads/2 && l.bytes > maxReadBytes/8 && l.steps > 0
}
