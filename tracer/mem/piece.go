package mem

// A Piece is memory that was read at once: whole pages.
type Piece struct {
	Start   uint64
	Bytes   []byte
	Present []bool // of the pages: which were in RAM
}

// End returns the address behind the piece.
func (p *Piece) End() uint64 { return p.Start + uint64(len(p.Bytes)) }

// At returns the bytes from an address on; nil: not n of them are in the piece.
func (p *Piece) At(address, n uint64) []byte {
	offset := address - p.Start
	if address < p.Start || offset+n > uint64(len(p.Bytes)) || offset+n < offset {
		return nil
	}
	return p.Bytes[offset : offset+n]
}

// IsPresent reports whether the page of an address was in RAM.
func (p *Piece) IsPresent(address uint64) bool {
	if address < p.Start || address >= p.End() || len(p.Present) == 0 {
		return false
	}
	page := uint64(len(p.Bytes) / len(p.Present))
	return p.Present[(address-p.Start)/page]
}
