package liveness

import "hash/maphash"

// A Fingerprint is of some bytes of what is in an object; 0: they could not be read. Where that of an object stays the same though
// others of its kind have others, it is the same object.
type Fingerprint uint64

// printed bytes at the start of an object, where free memory is linked, and as many at its middle, which only a new owner writes.
const printed = 16

var fingerprintSeed = maphash.MakeSeed()

// Fingerprints of objects. The error is that of memory.
func Fingerprints(memory Memory, objects []Object) ([]Fingerprint, error) {
	addresses := make([]uint64, 0, 2*len(objects))
	for _, o := range objects {
		addresses = append(addresses, o.Address, o.Address+o.Size/2&^(printed-1))
	}
	contents, err := memory.Peek(addresses, printed)
	if err != nil {
		return nil, err
	}
	prints := make([]Fingerprint, len(objects))
	for i := range prints {
		start, middle := contents[2*i], contents[2*i+1]
		if start != nil && middle != nil {
			prints[i] = Fingerprint(maphash.Bytes(fingerprintSeed, append(start[:printed:printed], middle...)))
		}
	}
	return prints, nil
}
