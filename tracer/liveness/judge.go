package liveness

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
)

// A reading is one look at all objects, with what was read of the allocator right before.
type reading struct {
	allocator *Allocator
	memory    Memory
	maps      []process.Mapping
	free      map[uint64]bool // objects in lists of free memory
	tops      []span
	chunks    []span // free ones, sorted

	objects []Object
	states  []State
	headers [][]byte // of the objects' chunks
	next    []uint64 // where the chunk after each object begins; 0: the object is judged
	claims  []claim
}

// A claim is that an object lies inside a free chunk.
type claim struct {
	object int
	chunk  span
}

func (r *reading) judge(objects []Object) ([]State, error) {
	r.objects, r.states, r.next = objects, make([]State, len(objects)), make([]uint64, len(objects))
	for _, step := range []func() error{r.readHeaders, r.readNext, r.suspect, r.checkClaims} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r.states, nil
}

// readHeaders judges by the objects' own headers and by the lists of free memory.
func (r *reading) readHeaders() (err error) {
	addresses := make([]uint64, len(r.objects))
	for i, o := range r.objects {
		addresses[i] = o.Address - headerSize
	}
	if r.headers, err = r.memory.Peek(addresses, headerSize); err != nil {
		return err
	}
	for i, o := range r.objects {
		header := r.headers[i]
		switch {
		case o.Address < headerSize || o.Address >= maxAddress || o.Address%16 != 0 || o.Size >= maxRequest:
		case header == nil:
			r.states[i] = r.unreadable(o)
		case r.free[o.Address] || !r.allocator.fits(o, word(header, 0), word(header, 8)) || inAny(r.tops, o.Address-headerSize):
			r.states[i] = Dead
		case word(header, 8)&isMapped != 0:
			r.states[i] = Alive
		default:
			r.states[i] = Alive
			r.next[i] = o.Address - headerSize + word(header, 8)&^chunkFlags
		}
	}
	return nil
}

// unreadable tells what is not there any more from what cannot be read. The header may lie in the page before the object.
func (r *reading) unreadable(o Object) State {
	if _, mapped := process.Find(r.maps, o.Address-headerSize); mapped || r.maps == nil {
		return Unknown
	}
	return Dead
}

// readNext judges by the chunks that follow the objects: they say whether the one before is in use.
func (r *reading) readNext() error {
	var addresses []uint64
	var origins []int
	for i, at := range r.next {
		if at != 0 {
			addresses, origins = append(addresses, at), append(origins, i)
		}
	}
	headers, err := r.memory.Peek(addresses, headerSize)
	if err != nil {
		return err
	}
	for j, header := range headers {
		switch i := origins[j]; {
		case header == nil:
			r.states[i], r.next[i] = Unknown, 0
		case word(header, 8)&previousInUse == 0:
			r.states[i], r.next[i] = Dead, 0
		}
	}
	return nil
}

// suspect notes the free chunks that objects lie in. One that has died there has become part of that chunk, and what its own
// header and the next one say may be of the time before.
func (r *reading) suspect() error {
	for i, o := range r.objects {
		if r.next[i] == 0 {
			continue
		}
		above, _ := slices.BinarySearchFunc(r.chunks, o.Address, func(c span, to uint64) int { return cmp.Compare(c.start, to) })
		if above == 0 {
			continue
		}
		if c := r.chunks[above-1]; c.start < o.Address-headerSize && o.Address-headerSize+minChunk <= c.end {
			r.claims = append(r.claims, claim{i, c})
		}
	}
	return nil
}

// checkClaims reads both ends of each free chunk, and the object between them, in one go: the chunk is there if both say the
// same size, and the object's header is as it was.
func (r *reading) checkClaims() error {
	addresses := make([]uint64, 0, 3*len(r.claims))
	for _, c := range r.claims {
		addresses = append(addresses, c.chunk.start, r.objects[c.object].Address-headerSize, c.chunk.end)
	}
	headers, err := r.memory.Peek(addresses, headerSize)
	if err != nil {
		return err
	}
	for j, c := range r.claims {
		start, object, end := headers[3*j], headers[3*j+1], headers[3*j+2]
		if start == nil || object == nil || end == nil {
			continue
		}
		size := c.chunk.end - c.chunk.start
		if word(start, 8)&^chunkFlags == size && word(end, 0) == size && word(end, 8)&previousInUse == 0 &&
			string(object) == string(r.headers[c.object]) {
			r.states[c.object] = Dead
		}
	}
	return nil
}
