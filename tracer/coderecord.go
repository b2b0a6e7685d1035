package tracer

import (
	"encoding/binary"
	"errors"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/python"
)

// A codeRecord is a code object as the kernel side has read it. It is the process's memory as far as it goes; what lies
// beyond is read from the process.
type codeRecord struct {
	tgid        uint32
	address     uint64
	fingerprint uint32
	pieces      [4]memoryPiece
	rest        python.Memory // nil: there is none
}

type memoryPiece struct {
	address uint64
	bytes   []byte
}

var errTorn = errors.New("memory that the kernel side could not read")

// ReadMemory implements python.Memory.
func (c *codeRecord) ReadMemory(address uint64, buffer []byte) error {
	for _, p := range c.pieces {
		if offset := address - p.address; offset < uint64(len(p.bytes)) {
			n := copy(buffer, p.bytes[offset:])
			if n == len(buffer) {
				return nil
			}
			return c.readRest(address+uint64(n), buffer[n:])
		}
	}
	return c.readRest(address, buffer)
}

func (c *codeRecord) readRest(address uint64, buffer []byte) error {
	if c.rest == nil {
		return errTorn
	}
	return c.rest.ReadMemory(address, buffer)
}

// decodeCode reads a record of the ring buffer; false: it is not of the size that the kernel side sends.
func decodeCode(raw []byte) (*codeRecord, bool) {
	var code bpf.KernelCode
	if _, err := binary.Decode(raw, binary.NativeEndian, &code); err != nil {
		return nil, false
	}
	record := &codeRecord{tgid: code.Tgid, address: code.Address, fingerprint: code.Fingerprint}
	for i, bytes := range [...][]byte{code.Object[:], code.Name[:], code.File[:], code.Lines[:]} {
		p := code.Pieces[i]
		record.pieces[i] = memoryPiece{p.Address, bytes[:min(p.Length, uint64(len(bytes)))]}
	}
	return record, true
}
