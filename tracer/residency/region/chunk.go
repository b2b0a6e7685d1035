package region

import "slices"

// A chunk that malloc maps by itself begins with two words: 0, and its size in bytes with the flag IS_MMAPPED (2) alone. For
// memory aligned to more than 16 bytes, a second such header follows, right below what the program gets: its distance from the
// start, and the size less that. The first keeps the size that was mapped, which mremap may have changed. From 2.43 on, sizes
// are without the header's 16 bytes (malloc/malloc.c).
const (
	chunkHeader = 128 // bytes that are read: enough for alignments up to 128 bytes
	isMmapped   = 2
	chunkFlags  = 15 // sizes are multiples of 16
	maxGuesses  = 64
)

// chunkSize is the size of the chunk that begins with a header, in bytes; 0: there is none that fits into room.
func chunkSize(header []byte, room uint64) uint64 {
	if header == nil || word(header, 0) != 0 {
		return 0
	}
	size := mappedSize(word(header, 8), 0)
	for shift := uint64(16); size > 0 && shift+16 <= chunkHeader; shift = 2*shift + 16 {
		if shifted := mappedSize(word(header, int(shift)+8), shift); word(header, int(shift)) == shift && shifted > 0 {
			size = shifted
		}
	}
	if size > room {
		return 0
	}
	return size
}

// mappedSize is what was mapped for a chunk, by the second word of a header some bytes after the start; 0 if it is no such word.
func mappedSize(size, shift uint64) uint64 {
	flags, end := size&chunkFlags, size&^chunkFlags+shift
	total := alignUp(end, pageSize)
	if flags != isMmapped || end <= shift || total < end || total != end && total != end+16 {
		return 0
	}
	return total
}

// A link is where a header is expected, after a run of chunks of one size. What begins there ends at end at the latest.
type link struct {
	at, end, size uint64
	run           int
}

// A walker goes from one thing to what follows directly after it.
type walker struct {
	*finder
	sizes map[uint64]uint64 // of the chunks that begin where a header was read; 0 if none does
	found []Region
	// Where the next headers are to be read, and where no chunk begins.
	next, others []link
}

// followed stands for the size of a chunk, or of none, that was followed already.
const followed = 1

// walk finds chunks and arenas of Python that begin at one of the starts, or directly after another.
func (f *finder) walk(starts []uint64) []Region {
	w := &walker{finder: f, sizes: make(map[uint64]uint64, len(starts))}
	w.next = f.links(starts)
	for len(w.next) > 0 && f.peeks > 0 {
		links := w.next
		w.next, w.others = nil, nil
		w.read(links)
		for _, l := range links {
			w.follow(l)
		}
		for _, p := range f.arenasAt(w.others) {
			w.found = append(w.found, p.region())
			w.next = append(w.next, link{at: p.end, end: p.room.end})
		}
	}
	return w.found
}

// links are where chunks may begin at first.
func (f *finder) links(starts []uint64) []link {
	slices.Sort(starts)
	links := make([]link, 0, len(starts))
	for _, s := range slices.Compact(starts) {
		if room, ok := holding(f.open, s); ok {
			links = append(links, link{at: s, end: room.end})
		}
	}
	return links
}

// read looks at the headers of links, and at those that follow if more chunks of the same size do.
func (w *walker) read(links []link) {
	addresses, ends := make([]uint64, 0, len(links)), make([]uint64, 0, len(links))
	for _, l := range links {
		for i := 0; i <= min(l.run, maxGuesses) && l.at < l.end; i++ {
			if _, known := w.sizes[l.at]; !known {
				addresses, ends = append(addresses, l.at), append(ends, l.end)
				w.sizes[l.at] = 0
			}
			if l.size == 0 || l.size > l.end-l.at {
				break
			}
			l.at += l.size
		}
	}
	for i, header := range w.peek(addresses, chunkHeader) {
		w.sizes[addresses[i]] = chunkSize(header, ends[i]-addresses[i])
	}
}

// follow goes along chunks as far as headers have been read.
func (w *walker) follow(l link) {
	for l.at < l.end {
		size, known := w.sizes[l.at]
		if !known {
			w.next = append(w.next, l)
			return
		}
		w.sizes[l.at] = followed
		if size == followed {
			return
		}
		if size == 0 {
			w.others = append(w.others, l)
			return
		}
		w.found = append(w.found, Region{Start: l.at, End: l.at + size, Class: Chunk, Name: string(Chunk), Private: true})
		if size != l.size {
			l.size, l.run = size, 0
		}
		l.run++
		l.at += size
	}
}
