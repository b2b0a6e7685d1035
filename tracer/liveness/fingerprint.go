// Package liveness checks from outside whether the objects that a trace follows are alive, while no
// probe sees them being freed. It finds the malloc of a process; the packages below tracer/heap read
// its memory.
//
// One case cannot be seen: an object of the same size that malloc has placed at the same address.
// Fingerprints show part of these.
package liveness

import (
	"hash/maphash"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
)

// Fingerprint is a hash of a part of an object's contents; 0 means that it could not be read. If it
// stays the same while the fingerprints of similar objects differ, the object is still the same.
type Fingerprint uint64

// fingerprintBytes are hashed at the start of an object, where malloc links free memory. As many
// are hashed at its middle, where only the program writes.
const fingerprintBytes = 16

var fingerprintSeed = maphash.MakeSeed()

// fingerprintsOf returns the fingerprints of objects, or the error of memory.
func fingerprintsOf(memory mem.Reader, objects []heap.Object) ([]Fingerprint, error) {
	addresses := make([]uint64, 0, 2*len(objects))
	for _, o := range objects {
		middle := o.Address + o.Size/2&^(fingerprintBytes-1)
		addresses = append(addresses, o.Address, middle)
	}
	contents, err := memory.Peek(addresses, fingerprintBytes)
	if err != nil {
		return nil, err
	}

	fingerprints := make([]Fingerprint, len(objects))
	for i := range fingerprints {
		start, middle := contents[2*i], contents[2*i+1]
		if start != nil && middle != nil {
			both := append(start[:fingerprintBytes:fingerprintBytes], middle...)
			fingerprints[i] = Fingerprint(maphash.Bytes(fingerprintSeed, both))
		}
	}
	return fingerprints, nil
}
