// Package glibc has all knowledge of glibc's malloc and of its threads: chunks, arenas, heaps,
// tcaches and free lists, the stacks of threads. It walks heaps, and checks whether objects are
// alive.
//
// The check rests on an invariant. While an object is alive, three things do not change, whatever
// the rest of the process does:
//
//   - the mchunk_size of its chunk,
//   - where the next chunk begins,
//   - the flag PREV_INUSE of the next chunk, which shows that this one is in use.
//
// One read that contradicts the invariant proves that the object is dead. Evidence that takes
// several words of the same moment must be seen in two passes.
package glibc

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Check returns the state of each object, all of them allocated before the call. An object is
// Dead if two passes in a row show it.
//
// maps are the mappings of the process, read after the objects were allocated. Without maps, an
// object in unmapped memory is Unknown rather than Dead. Check returns the errors of memory. It is
// not safe for concurrent use.
func (a *Malloc) Check(
	memory mem.Reader, maps []process.Mapping, objects []heap.Object,
) ([]heap.State, error) {
	arenas, err := a.readArenas(memory)
	if err != nil {
		return nil, err
	}
	tcaches, err := a.findTcaches(memory, maps, arenas)
	if err != nil {
		return nil, err
	}
	states, err := a.checkOnce(memory, maps, tcaches, objects)
	if err != nil {
		return nil, err
	}

	var dead []heap.Object
	var indices []int
	for i, s := range states {
		if s == heap.Dead {
			dead, indices = append(dead, objects[i]), append(indices, i)
		}
	}
	if len(dead) == 0 {
		return states, nil
	}

	again, err := a.checkOnce(memory, maps, tcaches, dead)
	if err != nil {
		return nil, err
	}
	for i, s := range again {
		if s != heap.Dead {
			states[indices[i]] = heap.Alive
		}
	}
	return states, nil
}

// checkOnce is one pass over the objects, right after a read of malloc's own state.
func (a *Malloc) checkOnce(
	memory mem.Reader, maps []process.Mapping, tcaches []uint64, objects []heap.Object,
) ([]heap.State, error) {
	arenas, err := a.readArenas(memory)
	if err != nil {
		return nil, err
	}
	listed, err := a.listedObjects(memory, arenas, tcaches)
	if err != nil {
		return nil, err
	}
	tops, err := a.readTops(memory, arenas)
	if err != nil {
		return nil, err
	}
	free, err := a.binnedChunks(memory, arenas)
	if err != nil {
		return nil, err
	}

	p := pass{
		allocator: a, memory: memory, maps: maps, listed: listed, tops: tops, freeChunks: free,
		objects: objects, states: make([]heap.State, len(objects)),
		nextChunks: make([]uint64, len(objects)),
	}
	for _, check := range []func() error{p.checkHeaders, p.checkNextChunks, p.checkInner} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return p.states, nil
}

// pass is one pass over all objects.
type pass struct {
	allocator *Malloc
	memory    mem.Reader
	maps      []process.Mapping

	listed     map[uint64]bool // objects in the free lists of tcaches and fastbins
	tops       mem.Spans       // top chunks
	freeChunks []mem.Span      // in bins, sorted by address

	objects []heap.Object
	states  []heap.State
	headers [][]byte // of the objects' chunks
	// nextChunks has the address of the chunk after each object, 0 where the state is final.
	nextChunks []uint64
}

// checkHeaders sets the states by the headers of the objects' chunks and by the free lists.
func (p *pass) checkHeaders() (err error) {
	p.headers, err = p.memory.Peek(chunksOf(addressesOf(p.objects)), HeaderSize)
	if err != nil {
		return err
	}

	for i, o := range p.objects {
		header, chunk := p.headers[i], o.Address-HeaderSize
		isMalloced := o.Address >= HeaderSize && o.Address < heap.MaxAddress &&
			o.Address%mallocAlignment == 0 && o.Size < maxRequest
		switch {
		case !isMalloced:
		case header == nil:
			p.states[i] = p.stateOfUnreadable(chunk)
		case p.listed[o.Address] || !p.allocator.fits(o, header) || p.isInTop(chunk):
			p.states[i] = heap.Dead
		case mchunkSize(header)&isMmapped != 0:
			p.states[i] = heap.Alive
		default:
			p.states[i] = heap.Alive
			p.nextChunks[i] = chunk + chunkSize(header)
		}
	}
	return nil
}

func (p *pass) isInTop(chunk uint64) bool {
	_, found := p.tops.Find(chunk)
	return found
}

// stateOfUnreadable distinguishes a chunk that is no longer mapped from one that cannot be read.
func (p *pass) stateOfUnreadable(chunk uint64) heap.State {
	if _, mapped := process.FindMapping(p.maps, chunk); mapped || p.maps == nil {
		return heap.Unknown
	}
	return heap.Dead
}

// checkNextChunks sets the states by the chunks after the objects. Their PREV_INUSE shows whether
// the chunk before is in use.
func (p *pass) checkNextChunks() error {
	var addresses []uint64
	var indices []int
	for i, chunk := range p.nextChunks {
		if chunk != 0 {
			addresses, indices = append(addresses, chunk), append(indices, i)
		}
	}

	headers, err := p.memory.Peek(addresses, HeaderSize)
	if err != nil {
		return err
	}
	for k, header := range headers {
		switch i := indices[k]; {
		case header == nil:
			p.states[i], p.nextChunks[i] = heap.Unknown, 0
		case mchunkSize(header)&prevInUse == 0:
			p.states[i], p.nextChunks[i] = heap.Dead, 0
		}
	}
	return nil
}

// innerObject is an object that lies inside a chunk in a bin.
type innerObject struct {
	object int // index
	chunk  mem.Span
}

// findInner returns the objects that lie inside a free chunk. Where free has merged the chunk of
// a dead object with its neighbors, the headers of the object and of the next chunk may be stale.
func (p *pass) findInner() (found []innerObject) {
	for i, o := range p.objects {
		if p.nextChunks[i] == 0 {
			continue
		}

		after, _ := slices.BinarySearchFunc(p.freeChunks, o.Address,
			func(c mem.Span, address uint64) int { return cmp.Compare(c.Start, address) })
		if after == 0 {
			continue
		}

		c, chunk := p.freeChunks[after-1], o.Address-HeaderSize
		if c.Start < chunk && chunk+minSize <= c.End {
			found = append(found, innerObject{i, c})
		}
	}
	return found
}

// checkInner sets the states of objects inside free chunks. It reads both ends of the free
// chunk and the header between them in one call. The chunk is real if both ends have its size and
// the object's header is as before.
func (p *pass) checkInner() error {
	candidates := p.findInner()
	addresses := make([]uint64, 0, 3*len(candidates))
	for _, e := range candidates {
		chunk := p.objects[e.object].Address - HeaderSize
		addresses = append(addresses, e.chunk.Start, chunk, e.chunk.End)
	}

	headers, err := p.memory.Peek(addresses, HeaderSize)
	if err != nil {
		return err
	}
	for k, e := range candidates {
		first, object, next := headers[3*k], headers[3*k+1], headers[3*k+2]
		if first == nil || object == nil || next == nil {
			continue
		}

		size := e.chunk.Len()
		isFree := chunkSize(first) == size &&
			mchunkPrevSize(next) == size && mchunkSize(next)&prevInUse == 0
		if isFree && string(object) == string(p.headers[e.object]) {
			p.states[e.object] = heap.Dead
		}
	}
	return nil
}
