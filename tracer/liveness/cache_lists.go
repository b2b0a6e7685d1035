package liveness

// cacheLinks gives the heads of the lists of thread caches.
func (a *Allocator) cacheLinks(memory Memory, caches []uint64) ([]link, error) {
	contents, err := memory.Peek(chunksOf(caches), headerSize+maxCache)
	if err != nil {
		return nil, err
	}
	var links []link
	for i, content := range contents {
		l, ok := cacheLayoutOf(content)
		if !ok {
			continue
		}
		heads := l.heads(content[headerSize:])
		keyed, err := a.keyed(memory, caches[i], heads)
		if err != nil {
			return nil, err
		}
		links = append(links, keyed...)
	}
	return links, nil
}

func chunksOf(objects []uint64) []uint64 {
	chunks := make([]uint64, len(objects))
	for i, o := range objects {
		chunks[i] = o - headerSize
	}
	return chunks
}

// heads gives the first objects of the lists; none if one is no object: then this is something else.
func (l cacheLayout) heads(content []byte) []link {
	var links []link
	for i := range l.lists {
		to := word(content, l.entries+8*i)
		if to%16 != 0 || to >= maxAddress {
			return nil
		}
		size := minChunk + 16*uint64(i)
		sizes := span{size, size}
		if i >= smallLists { // one for each power of two
			sizes = span{maxSmallCached, maxSmallCached << (i - smallLists + 1)}
		}
		if to != 0 {
			links = append(links, link{list{size: sizes}, to})
		}
	}
	return links
}

// keyed gives the links the key that all objects in this cache have: before 2.34 its address, later a random number of the
// process. None if they have another.
func (a *Allocator) keyed(memory Memory, cache uint64, links []link) ([]link, error) {
	nodes, err := readNodes(memory, links)
	if err != nil {
		return nil, err
	}
	counts := make(map[uint64]int)
	for i, node := range nodes {
		if node != nil && links[i].holds(node) { // else taken meanwhile
			counts[word(node, 24)]++
		}
	}
	key := a.key
	if counts[cache] > 0 {
		key = cache
	}
	for random := range counts {
		if a.key == 0 && len(counts) == 1 && random > maxPointer {
			if key, err = a.learn(memory, random); err != nil {
				return nil, err
			}
		}
	}
	if key == 0 {
		return nil, nil
	}
	for i := range links {
		links[i].key = key
	}
	return links, nil
}

// learn takes a number for the key of thread caches if the C library has it among its variables, and gives it; else 0.
func (a *Allocator) learn(memory Memory, key uint64) (uint64, error) {
	start := a.main&^(pieceSize-1) - keyDistance
	content, err := readAll(memory, span{start, start + 2*keyDistance})
	if err != nil {
		return 0, err
	}
	for at := 0; at < len(content); at += 8 {
		if word(content, at) == key {
			a.key = key
			return key, nil
		}
	}
	return 0, nil
}
