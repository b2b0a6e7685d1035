package caching

import (
	"maps"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// A pool is a BlockPool: the set of free blocks of one size class, of the GPU or of a PrivatePool.
type pool struct {
	self    uint64
	isSmall bool
	owner   uint64 // its PrivatePool; 0: a default pool
	root    uint64 // of the tree of its free blocks
}

// Offsets in a BlockPool: std::set of libstdc++ (the comparator, then the header of the tree), once
// or, since 2.1, twice; then is_small, owner_PrivatePool and more by version.
const (
	setBytes     = 48
	setRootAt    = 16
	poolBytes    = 2*setBytes + 16
	minPoolBytes = setBytes + 16   // from a pool to the one beside it
	maxPoolBytes = poolBytes + 4*8 // likewise
	poolsScanned = 4096            // bytes from a large pool on that have the tables of its GPU
	ownerScanned = 512             // bytes of a PrivatePool in which its pools are sought
	nodeBytes    = 40
	nodeLeftAt   = 16
	nodeRightAt  = 24
	nodeBlockAt  = 32
)

// readPools reads the pools of the blocks, the pools beside them, and all blocks of these.
func (r *Reader) readPools() error {
	if err := r.addNewPools(); err != nil {
		return err
	}

	if err := r.findGPUs(); err != nil {
		return err
	}

	if err := r.addNewPools(); err != nil {
		return err
	}

	seen := make(map[uint64]bool)
	for _, a := range r.poolAddresses() {
		if err := r.readFree(r.pools[a], seen); err != nil {
			return err
		}
	}

	return nil
}

// addNewPools adds the pools that were not read yet, and those to which they lead.
func (r *Reader) addNewPools() error {
	for len(r.newPools) > 0 {
		addresses := r.newPools
		r.newPools = nil
		if err := r.addPools(addresses); err != nil {
			return err
		}
	}

	return nil
}

// findGPUs finds the large default pools of GPUs without allocated blocks: behind the tables is a
// vector of the DeviceCachingAllocators of all GPUs, which have it at the same offset.
func (r *Reader) findGPUs() error {
	content, err := mem.ReadRange(r.memory, r.finder.tables)
	if err != nil {
		return err
	}

	var vectors []mem.Span
	for at := 0; at+3*8 <= len(content); at += 8 {
		begin, end, capacity := mem.Word(content, at), mem.Word(content, at+8), mem.Word(content, at+16)
		if isPointer(begin) && begin < end && end <= capacity && end-begin <= maxGPUs*8 && end%8 == 0 {
			vectors = append(vectors, mem.Span{Start: begin, End: end})
		}
	}

	contents, err := mem.ReadRanges(r.memory, vectors...)
	if err != nil {
		return err
	}

	known := r.largePools()
	for _, content := range contents {
		allocators := words(content)
		offset := offsetIn(allocators, known)
		for _, a := range allocators {
			if offset != 0 {
				r.newPools = append(r.newPools, a+offset)
			}
		}
	}

	return nil
}

// largePools returns the addresses of the known default pools for large blocks, one for each GPU.
func (r *Reader) largePools() (large []uint64) {
	for _, a := range r.poolAddresses() {
		if p := r.pools[a]; p.owner == 0 && !p.isSmall && len(large) < maxGPUs {
			large = append(large, a)
		}
	}

	return large
}

// offsetIn returns the offset of large default pools in allocators, by the known ones; 0: none of
// them is in an allocator.
func offsetIn(allocators, large []uint64) uint64 {
	offset := uint64(statsScanned)
	for _, allocator := range allocators {
		for _, p := range large {
			if p > allocator {
				offset = min(offset, p-allocator)
			}
		}
	}

	return offset % statsScanned
}

// addPools adds the pools at some addresses, the ones beside them, and all that belongs to their
// GPUs: blocks in use and private pools.
func (r *Reader) addPools(addresses []uint64) error {
	slices.Sort(addresses)
	contents, err := r.memory.Peek(addresses, poolBytes)
	if err != nil {
		return err
	}

	if r.compared == 0 {
		r.compared = mostCompared(r.code, contents)
	}

	var added []*pool
	for i, content := range contents {
		if content == nil {
			continue
		}
		if p, ok := r.poolFrom(addresses[i], content); ok && r.addPool(p) {
			added = append(added, p)
		}
	}

	siblings, err := r.addSiblings(added)
	if err != nil {
		return err
	}

	for _, p := range append(added, siblings...) {
		if p.owner == 0 && !p.isSmall {
			if err := r.readGPU(p); err != nil {
				return err
			}
		}
	}

	return nil
}

// addPool adds a pool, unless it is known or there are too many.
func (r *Reader) addPool(p *pool) bool {
	if r.pools[p.self] != nil || len(r.pools) >= maxPools {
		return false
	}

	r.pools[p.self] = p
	return true
}

// poolAddresses returns the addresses of the known pools, in order.
func (r *Reader) poolAddresses() []uint64 { return slices.Sorted(maps.Keys(r.pools)) }

// mostCompared returns the function by which most of the pools compare; 0: there is none.
func mostCompared(code mem.Spans, contents [][]byte) uint64 {
	number := make(map[uint64]int)
	most := uint64(0)
	for _, content := range contents {
		if content == nil {
			continue
		}
		compare := mem.Word(content, 0)
		if code.Contains(mem.Span{Start: compare, End: compare + 1}) {
			if number[compare]++; number[compare] > number[most] {
				most = compare
			}
		}
	}

	return most
}

// poolFrom returns the pool that some memory may be. All pools compare by the same function.
func (r *Reader) poolFrom(address uint64, content []byte) (*pool, bool) {
	if r.compared == 0 || mem.Word(content, 0) != r.compared {
		return nil, false
	}

	flags := flagsAt(r.code, content)
	if content[flags] > 1 {
		return nil, false
	}

	return &pool{
		self: address, isSmall: content[flags] == 1, owner: mem.Word(content, flags+8),
		root: mem.Word(content, setRootAt),
	}, true
}

// flagsAt is the offset of is_small: behind one set or two.
func flagsAt(code mem.Spans, content []byte) int {
	second := mem.Word(content, setBytes)
	if code.Contains(mem.Span{Start: second, End: second + 1}) {
		return 2 * setBytes
	}

	return setBytes
}

// addSiblings adds the other pool of the same owner for each of some pools: the one of large blocks
// is followed by the one of small blocks. Their size differs by version.
func (r *Reader) addSiblings(pools []*pool) (added []*pool, err error) {
	const span = maxPoolBytes + poolBytes // from the large pool on
	addresses := make([]uint64, len(pools))
	for i, p := range pools {
		addresses[i] = p.self + minPoolBytes
		if p.isSmall {
			addresses[i] = p.self - maxPoolBytes
		}
	}

	contents, err := r.memory.Peek(addresses, span-minPoolBytes)
	if err != nil {
		return nil, err
	}

	for i, p := range pools {
		for at := 0; contents[i] != nil && at <= maxPoolBytes-minPoolBytes; at += 8 {
			s, ok := r.poolFrom(addresses[i]+uint64(at), contents[i][at:])
			if !ok || s.isSmall == p.isSmall || s.owner != p.owner {
				continue
			}
			if r.addPool(s) {
				added = append(added, s)
			}
			break
		}
	}

	return added, nil
}

// readGPU reads the tables behind the large default pool of a GPU, in its DeviceCachingAllocator:
// the blocks in use, by a stream alone too, and the private pools.
func (r *Reader) readGPU(large *pool) error {
	content, err := mem.ReadRange(r.memory, mem.Span{
		Start: large.self, End: large.self + poolsScanned,
	})
	if err != nil {
		return err
	}

	active, err := r.memory.tablesIn(content, setEntry)
	if err != nil {
		return err
	}

	values, err := r.memory.values(active)
	if err != nil {
		return err
	}

	for _, v := range values {
		if err := r.follow(words(v)); err != nil {
			return err
		}
	}

	private, err := r.memory.tablesIn(content, poolEntry)
	if err != nil {
		return err
	}

	values, err = r.memory.values(private)
	if err != nil {
		return err
	}

	for _, v := range values {
		if err := r.addPrivatePools(v); err != nil {
			return err
		}
	}

	return nil
}

// words returns the pointers among some words.
func words(content []byte) (pointers []uint64) {
	for word := range slices.Chunk(content, 8) {
		if w := mem.Word(word, 0); isPointer(w) {
			pointers = append(pointers, w)
		}
	}

	return pointers
}

// addPrivatePools adds the pools of the entries of a table of private pools.
func (r *Reader) addPrivatePools(values []byte) error {
	for value := range slices.Chunk(values, poolEntry-8) {
		id := [2]uint64{mem.Word(value, 0), mem.Word(value, 8)}
		address := mem.Word(value, 16)
		if !isPointer(address) || r.poolIDs[address] != [2]uint64{} || id == [2]uint64{} {
			continue
		}

		content, err := mem.ReadRange(r.memory, mem.Span{
			Start: address, End: address + ownerScanned,
		})
		if err != nil {
			return err
		}

		for at := 0; at+poolBytes <= len(content); at += 8 {
			if p, ok := r.poolFrom(address+uint64(at), content[at:]); ok && p.owner == address {
				r.poolIDs[address] = id
				r.addPool(p)
			}
		}
	}

	return nil
}

// readFree reads the free blocks of a pool, and the ones in their segments. It leaves out the nodes
// of the tree that were seen before.
func (r *Reader) readFree(p *pool, seen map[uint64]bool) error {
	var found []uint64
	for level := []uint64{p.root}; len(level) > 0 && len(seen) <= maxBlocks; {
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
				if child := mem.Word(content, at); isPointer(child) && !seen[child] {
					seen[child] = true
					next = append(next, child)
				}
			}
		}
		level = next
	}

	return r.follow(found)
}
