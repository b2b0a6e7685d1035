// Package liveness tells from outside whether objects of glibc's malloc are still alive: by what malloc keeps in the memory of
// the process around each object and in its lists of free memory. Nothing is probed, stopped or written. What is read there is
// taken for hostile: any contents cost bounded work and give some answer.
//
// The rules rest on this: while an object is alive, the size in its chunk's header, where the next chunk begins and that this
// knows of a chunk in use before it do not change, whatever the rest of the process does. One reading that contradicts is
// proof. What is proof only if several words are of one moment has to be seen twice.
//
// What cannot be seen: memory that an object of the same size has taken over at the same address.
package liveness

import "github.com/allocscope/allocscope/tracer/process"

// A Memory reads the memory of a process, as process.Process does.
type Memory interface {
	// Peek reads size bytes, up to 4096, at each address, in the order of the addresses; nil for what cannot be read or had
	// better not be. The error is for a process that cannot be read any more.
	Peek(addresses []uint64, size int) ([][]byte, error)
}

// An Object was handed out by malloc or one of its kind.
type Object struct {
	Address uint64
	Size    uint64 // bytes asked for
}

// A State is what is known of an object.
type State uint8

// The states. Dead is shown, and an object that is alive is never called so. Resized in place counts as dead: it is another
// object then. Alive is what nothing contradicts. Unknown is what could not be read, or is no address of malloc's.
const (
	Unknown State = iota
	Alive
	Dead
)

// Look tells of each object whether it is alive. All of them were born before the call, and before the maps were read; maps
// may be nil, then what is not mapped any more is Unknown. Two readings that follow each other have to show that an object is
// dead. It is not for concurrent use. The error is that of memory.
func (a *Allocator) Look(memory Memory, maps []process.Mapping, objects []Object) ([]State, error) {
	arenas, err := a.arenas(memory)
	if err != nil {
		return nil, err
	}
	caches, err := a.caches(memory, maps, arenas)
	if err != nil {
		return nil, err
	}
	states, err := a.read(memory, maps, caches, objects)
	if err != nil {
		return nil, err
	}
	var suspects []Object
	var origins []int
	for i, s := range states {
		if s == Dead {
			suspects, origins = append(suspects, objects[i]), append(origins, i)
		}
	}
	if len(suspects) == 0 {
		return states, nil
	}
	again, err := a.read(memory, maps, caches, suspects)
	if err != nil {
		return nil, err
	}
	for i, s := range again {
		if s != Dead {
			states[origins[i]] = Alive
		}
	}
	return states, nil
}

// read is one reading.
func (a *Allocator) read(memory Memory, maps []process.Mapping, caches []uint64, objects []Object) ([]State, error) {
	arenas, err := a.arenas(memory)
	if err != nil {
		return nil, err
	}
	free, err := a.freed(memory, arenas, caches)
	if err != nil {
		return nil, err
	}
	tops, err := a.readTops(memory, arenas)
	if err != nil {
		return nil, err
	}
	chunks, err := a.freeChunks(memory, arenas)
	if err != nil {
		return nil, err
	}
	r := reading{allocator: a, memory: memory, maps: maps, free: free, tops: tops, chunks: chunks}
	return r.judge(objects)
}
