package caching

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// A pool is a BlockPool: the set of free blocks of one size class, of the GPU or of a PrivatePool.
type pool struct {
	self    uint64
	isSmall bool
	owner   uint64 // its PrivatePool; 0: a default pool
	root    uint64 // of the tree of its free blocks
	free    uint64 // number of them
}

// Offsets in a BlockPool: std::set of libstdc++ (the comparator, then the header of the tree), once
// or, since 2.1, twice; then is_small and owner_PrivatePool.
const (
	setBytes     = 48
	setRootAt    = 16
	setCountAt   = 40
	poolBytes    = 2*setBytes + 16
	poolsScanned = 4096 // bytes behind a default pool in which the table of private pools is sought
	ownerScanned = 512  // bytes of a PrivatePool in which its pools are sought
	nodeBytes    = 40
	nodeLeftAt   = 16
	nodeRightAt  = 24
	nodeBlockAt  = 32
)

// readPools reads the pools of the blocks, the pools beside them, and their free blocks.
func (r *Reader) readPools() error {
	var addresses []uint64
	for _, b := range r.blocks {
		addresses = append(addresses, b.pool)
	}

	slices.Sort(addresses)
	for _, a := range slices.Compact(addresses) {
		if err := r.addPool(a); err != nil {
			return err
		}
	}

	for _, a := range r.poolAddresses() {
		if err := r.addSibling(r.pools[a]); err != nil {
			return err
		}
	}

	for _, a := range r.poolAddresses() {
		if p := r.pools[a]; p.owner == 0 {
			if err := r.addPrivatePools(p); err != nil {
				return err
			}
		}
	}

	for _, a := range r.poolAddresses() {
		if err := r.readFree(r.pools[a]); err != nil {
			return err
		}
	}

	return nil
}

// poolAddresses returns the addresses of the known pools, in order.
func (r *Reader) poolAddresses() []uint64 {
	addresses := make([]uint64, 0, len(r.pools))
	for a := range r.pools {
		addresses = append(addresses, a)
	}

	slices.Sort(addresses)
	return addresses
}

// addPool adds the pool at an address, if there is one.
func (r *Reader) addPool(address uint64) error {
	if r.pools[address] != nil || len(r.pools) >= maxPools {
		return nil
	}

	content, err := mem.PeekOne(r.memory, address, poolBytes)
	if err != nil || content == nil {
		return err
	}

	if p, ok := r.poolFrom(address, content); ok {
		r.pools[address] = p
	}

	return nil
}

// poolFrom returns the pool that some memory may be. All pools compare by the same function.
func (r *Reader) poolFrom(address uint64, content []byte) (*pool, bool) {
	compare := mem.Word(content, 0)
	if !r.code.Contains(mem.Span{Start: compare, End: compare + 1}) ||
		r.compared != 0 && compare != r.compared {
		return nil, false
	}

	flags := r.flagsAt(content)
	if content[flags] > 1 {
		return nil, false
	}

	r.compared = compare
	return &pool{
		self: address, isSmall: content[flags] == 1, owner: mem.Word(content, flags+8),
		root: mem.Word(content, setRootAt), free: mem.Word(content, setCountAt),
	}, true
}

// flagsAt is the offset of is_small: behind one set or two.
func (r *Reader) flagsAt(content []byte) int {
	second := mem.Word(content, setBytes)
	if r.code.Contains(mem.Span{Start: second, End: second + 1}) {
		return 2 * setBytes
	}

	return setBytes
}

// addSibling adds the other pool of the same owner: the one of large blocks is followed by the one
// of small blocks. Their size differs by version.
func (r *Reader) addSibling(p *pool) error {
	for size := uint64(setBytes + 16); size <= poolBytes+4*8; size += 8 {
		at := p.self + size
		if p.isSmall {
			at = p.self - size
		}
		content, err := mem.PeekOne(r.memory, at, poolBytes)
		if err != nil {
			return err
		}
		if content == nil || mem.Word(content, 0) != r.compared {
			continue
		}
		if s, ok := r.poolFrom(at, content); ok && s.isSmall != p.isSmall && s.owner == p.owner {
			if r.pools[at] == nil && len(r.pools) < maxPools {
				r.pools[at] = s
			}
			return nil
		}
	}

	return nil
}

// addPrivatePools finds the table of private pools in the DeviceCachingAllocator, which a default
// pool is a part of, and adds them.
func (r *Reader) addPrivatePools(p *pool) error {
	content, err := mem.ReadRange(r.memory, mem.Span{Start: p.self, End: p.self + poolsScanned})
	if err != nil {
		return err
	}

	for at := 0; at+tableBytes <= len(content); at += 8 {
		t, ok := tableAt(content, at, poolEntry)
		if !ok {
			continue
		}
		values, err := t.values(r.memory)
		if err != nil {
			return err
		}
		for _, v := range values {
			id := [2]uint64{mem.Word(v, 0), mem.Word(v, 8)}
			if err := r.addPrivatePool(mem.Word(v, 16), id); err != nil {
				return err
			}
		}
	}

	return nil
}

// addPrivatePool adds the pools within a PrivatePool, if there is one at an address.
func (r *Reader) addPrivatePool(address uint64, id [2]uint64) error {
	if address == 0 || address%8 != 0 || r.poolIDs[address] != [2]uint64{} || id == [2]uint64{} {
		return nil
	}

	content, err := mem.ReadRange(r.memory, mem.Span{Start: address, End: address + ownerScanned})
	if err != nil {
		return err
	}

	for at := 0; at+poolBytes <= len(content); at += 8 {
		if mem.Word(content, at) != r.compared {
			continue
		}
		p, ok := r.poolFrom(address+uint64(at), content[at:])
		if !ok || p.owner != address || len(r.pools) >= maxPools {
			continue
		}
		r.poolIDs[address] = id
		if r.pools[p.self] == nil {
			r.pools[p.self] = p
		}
	}

	return nil
}

// readFree reads the free blocks of a pool, and the ones in their segments.
func (r *Reader) readFree(p *pool) error {
	seen := make(map[uint64]bool)
	level := []uint64{p.root}
	var found []uint64
	for len(level) > 0 && len(seen) <= maxBlocks {
		contents, err := r.memory.Peek(level, nodeBytes)
		if err != nil {
			return err
		}
		var next []uint64
		for _, content := range contents {
			if content == nil {
				continue
			}
			found = append(found, mem.Word(content, nodeBlockAt))
			for _, at := range []int{nodeLeftAt, nodeRightAt} {
				if child := mem.Word(content, at); child != 0 && child%8 == 0 && !seen[child] {
					seen[child] = true
					next = append(next, child)
				}
			}
		}
		level = next
	}

	return r.follow(r.unknown(found))
}
