package pymalloc

import (
	"encoding/binary"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
)

const forgedAt = uint64(0x7f0000000000)

// A pool has as many live blocks as its header says, and finds each by any address in it.
func FuzzPool(f *testing.F) {
	header := func(count, szidx, next uint32, free uint64) []byte {
		b := make([]byte, MaxPoolSize)
		binary.LittleEndian.PutUint32(b, count)
		binary.LittleEndian.PutUint64(b[8:], free)
		binary.LittleEndian.PutUint32(b[36:], szidx)
		binary.LittleEndian.PutUint32(b[40:], next)
		binary.LittleEndian.PutUint32(b[44:], MaxPoolSize-16*(szidx+1))
		return b
	}
	f.Add(header(3, 3, HeaderSize+3*64, 0))
	f.Add(header(2, 3, HeaderSize+3*64, forgedAt+HeaderSize+64))
	f.Add(header(1, 0, HeaderSize+2*16, forgedAt+HeaderSize))
	f.Add(header(1, 31, MaxPoolSize, forgedAt))
	circle := header(1, 3, HeaderSize+3*64, forgedAt+HeaderSize)
	binary.LittleEndian.PutUint64(circle[HeaderSize:], forgedAt+HeaderSize)
	f.Add(circle)
	f.Add(header(^uint32(0), 31, ^uint32(0), ^uint64(0)))

	f.Fuzz(func(t *testing.T, content []byte) {
		size := uint64(4 << 10)
		if len(content) > 4<<10 {
			size = MaxPoolSize
		}
		content = append(content, make([]byte, size)...)[:size]
		p, _ := ParsePool(content, forgedAt)
		if p == nil {
			return
		}
		live := make(map[mem.Span]bool)
		for at := forgedAt; at < forgedAt+size; at++ {
			b, ok := p.Find(at)
			if !ok {
				continue
			}
			if live[b] = true; at < b.Start || at >= b.End || b.Len() != p.BlockSize ||
				b.Start < forgedAt+HeaderSize || b.End > forgedAt+size {
				t.Fatalf("%#x is in %+v of %+v", at, b, p)
			}
		}
		count := 0
		for b := range p.Live {
			if count++; !live[b] {
				t.Fatalf("%+v is live in %+v", b, p)
			}
		}
		if count != len(live) || uint64(count) != p.Count || p.Count != uint64(mem.Word32(content, 0)) {
			t.Fatalf("%d blocks, want %d", len(live), p.Count)
		}
	})
}

// A full pool of blocks of 16 bytes, of the fourth arena.
func TestIsPool(t *testing.T) {
	full := make([]byte, HeaderSize)
	binary.LittleEndian.PutUint32(full, (MaxPoolSize-HeaderSize)/16)
	binary.LittleEndian.PutUint32(full[32:], 3)
	binary.LittleEndian.PutUint32(full[40:], MaxPoolSize)
	binary.LittleEndian.PutUint32(full[44:], MaxPoolSize-16)
	for name, c := range map[string]struct {
		address, size uint64
		content       []byte
		want          bool
	}{
		"a pool":               {forgedAt, MaxPoolSize, full, true},
		"of another size":      {forgedAt, 4 << 10, full, false},
		"at no pool's start":   {forgedAt + 4096, MaxPoolSize, full, false},
		"zeros":                {forgedAt, MaxPoolSize, make([]byte, HeaderSize), false},
		"an unknown pool size": {forgedAt, 8 << 10, full, false},
		"less than the header": {forgedAt, MaxPoolSize, full[:HeaderSize-1], false},
	} {
		if got := IsPool(c.address, c.content, c.size); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
