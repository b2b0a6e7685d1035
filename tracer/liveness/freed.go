package liveness

// A list is a singly linked list of free chunks of one size: of a thread's cache or of an arena's fastbins. From 2.32 on, its
// links are mixed with their own place ("safe-linking"); both readings of a link are tried, and size and key tell.
type list struct {
	size  span   // of chunks, end included
	key   uint64 // second word of each object in it; 0: of fastbins, which have none
	chunk uint64 // what to add to a link to get an object: fastbins link chunks
}

// A link leads to an object in a list.
type link struct {
	list
	object uint64
}

// Bounds of one reading of the lists.
const (
	maxRounds = 1024 // of reading all lists one step further: 7 in thread caches, more in fastbins and by tunables
	maxFreed  = 1 << 15
)

const nodeSize = headerSize + 16 // the chunk's header, the link, the key

// freed gives the objects in thread caches and fastbins, whose chunks look like those in use.
func (a *Allocator) freed(memory Memory, arenas []arena, caches []uint64) (map[uint64]bool, error) {
	links, err := a.cacheLinks(memory, caches)
	if err != nil {
		return nil, err
	}
	for _, r := range arenas {
		for i, chunk := range r.fast {
			size := minChunk + 16*uint64(i)
			if chunk != 0 {
				links = append(links, link{list{size: span{size, size}, chunk: headerSize}, chunk + headerSize})
			}
		}
	}
	return follow(memory, links)
}

// follow goes along all lists at once.
func follow(memory Memory, links []link) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	for round := 0; len(links) > 0 && round < maxRounds; round++ {
		nodes, err := readNodes(memory, links)
		if err != nil {
			return nil, err
		}
		var next []link
		for i, node := range nodes {
			l := links[i]
			if node == nil || !l.holds(node) || found[l.object] || len(found) >= maxFreed {
				continue
			}
			found[l.object] = true
			next = append(next, l.onward(node)...)
		}
		links = next
	}
	return found, nil
}

func readNodes(memory Memory, links []link) ([][]byte, error) {
	addresses := make([]uint64, len(links))
	for i, l := range links {
		addresses[i] = l.object - headerSize
	}
	return memory.Peek(addresses, nodeSize)
}

// holds reports whether an object's memory is as in this list.
func (l list) holds(node []byte) bool {
	size := word(node, 8) &^ chunkFlags
	return l.size.start <= size && size <= l.size.end && (l.key == 0 || word(node, 24) == l.key)
}

// onward gives the objects that may follow; none at the end of the list.
func (l link) onward(node []byte) []link {
	plain := word(node, headerSize)
	mixed := plain ^ l.object>>12
	if plain == 0 || mixed == 0 {
		return nil
	}
	var next []link
	for _, to := range []uint64{plain, mixed} {
		if to%16 == 0 && to < maxAddress {
			next = append(next, link{l.list, to + l.chunk})
		}
	}
	return next
}
