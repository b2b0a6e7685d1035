package objects

import (
	"bytes"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A pageCache reads memory by pages, and keeps them: objects that lie near each other are read one
// by one, and each read costs a system call.
type pageCache struct {
	memory *memory
	kept   map[uint64][]byte // nil: not in RAM
	pools  map[uint64]*pymalloc.Pool
}

func newPageCache(m *memory) *pageCache {
	return &pageCache{
		memory: m, kept: make(map[uint64][]byte), pools: make(map[uint64]*pymalloc.Pool),
	}
}

// maxKeptBytes bounds the pages that peek keeps.
const maxKeptBytes = 16 << 20

// bytesAtOnce is how much keep reads at once, less than hostile.MaxBytes.
const bytesAtOnce = 1 << 20

// word reads a word.
func (c *pageCache) word(address uint64) (uint64, bool) {
	b, ok := c.peek(address, wordSize)
	if !ok {
		return 0, false
	}
	return mem.Word(b, 0), true
}

// readWord reads a word of now.
func (h *Heap) readWord(address uint64) (uint64, bool) {
	now, err := h.memory.reader.Peek([]uint64{address}, wordSize)
	if err != nil || now[0] == nil {
		return 0, false
	}
	return mem.Word(now[0], 0), true
}

// peek reads bytes that are in RAM, of at most a page. It keeps the pages that it reads, until
// forget.
func (c *pageCache) peek(address uint64, size int) ([]byte, bool) {
	page := process.PageSize
	if address < page || address >= maxAddress || uint64(size) > page {
		return nil, false
	}
	first, offset := c.page(address&^(page-1)), address%page
	if first == nil {
		return nil, false
	}
	if offset+uint64(size) <= page {
		return first[offset : offset+uint64(size)], true
	}

	second := c.page(address&^(page-1) + page)
	if second == nil {
		return nil, false
	}
	return slices.Concat(first[offset:], second[:offset+uint64(size)-page]), true
}

// page returns a page of memory; nil: it is not in RAM.
func (c *pageCache) page(start uint64) []byte {
	if content, ok := c.kept[start]; ok {
		return content
	}

	content := make([]byte, process.PageSize)
	present, err := c.memory.reader.PeekPages(start, content)
	if err != nil || !present[0] {
		content = nil
	}

	if uint64(len(c.kept)+1)*process.PageSize > maxKeptBytes {
		c.forget()
	}
	c.kept[start] = content
	return content
}

// keep reads pages for peek, all by one call.
func (c *pageCache) keep(addresses []uint64) {
	if uint64(len(c.kept)+len(addresses))*process.PageSize > maxKeptBytes {
		c.forget()
	}

	content := make([]byte, uint64(len(addresses))*process.PageSize)
	present, err := c.memory.reader.PeekPagesAt(addresses, content)
	if err != nil {
		return
	}

	for i, address := range addresses {
		c.kept[address] = nil
		if present[i] {
			c.kept[address] = content[uint64(i)*process.PageSize:][:process.PageSize]
		}
	}
}

// forget makes peek read again: the process has gone on since.
func (c *pageCache) forget() {
	clear(c.kept)
	clear(c.pools)
}

// pool returns the pool at an address, as pymalloc.ParsePool does.
func (c *pageCache) pool(start, size uint64) (found *pymalloc.Pool, isChanging bool) {
	if p, isKnown := c.pools[start]; isKnown {
		return p, false
	}

	first := c.page(start &^ (process.PageSize - 1))
	if first == nil {
		return nil, false
	}
	content := slices.Clone(first[start%process.PageSize:][:min(size, process.PageSize)])
	for at := start + process.PageSize; at < start+size; at += process.PageSize {
		page := c.page(at)
		if page == nil {
			page = make([]byte, process.PageSize)
		}
		content = append(content, page...)
	}
	if found, isChanging = pymalloc.ParsePool(content, start); isChanging {
		if again := c.memory.readAround(start, size); again != nil { // as in piece.poolAt
			found, isChanging = pymalloc.ParsePool(again, start)
		}
	}
	if !isChanging {
		c.pools[start] = found
	}
	return found, isChanging
}

// contentOf returns the first bytes of a block. The program may never have written to them: bytes
// that are not in RAM are zero, as in a piece.
func (c *pageCache) contentOf(b block) []byte {
	content := make([]byte, min(b.Len(), nodeContents))
	offset := b.Start % process.PageSize
	first := b.Start - offset
	if page := c.page(first); page != nil {
		copy(content, page[offset:])
	}
	if inFirst := process.PageSize - offset; inFirst < uint64(len(content)) {
		copy(content[inFirst:], c.page(first+process.PageSize))
	}
	return content
}

// read reads bytes of one page, be it in RAM or not.
func (c *pageCache) read(address uint64, to []byte) bool {
	content, ok := c.peek(address, len(to))
	copy(to, content)
	return ok || c.memory.process.ReadMemory(address, to) == nil
}

// cString returns the C string at an address, printable, of at most limit bytes.
func (c *pageCache) cString(address uint64, limit int) (string, bool) {
	if address == 0 || address >= maxAddress {
		return "", false
	}

	// The string may end with the last page of a mapping: the next page is read only if it has to
	// be.
	text := make([]byte, limit)
	inPage := min(uint64(limit), process.PageSize-address%process.PageSize)
	if !c.read(address, text[:inPage]) {
		return "", false
	}
	end := bytes.IndexByte(text[:inPage], 0)
	if rest := text[inPage:]; end < 0 && len(rest) > 0 {
		if !c.read(address+inPage, rest) {
			return "", false
		}
		end = bytes.IndexByte(text, 0)
	}

	if end < 0 {
		return "", false
	}
	return growth.Printable(string(text[:end])), true
}
