package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// miniDebugSection has an ELF file, packed by xz, with the functions that are not in .dynsym:
// https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html
const miniDebugSection = ".gnu_debugdata"

// miniDebug unpacks the MiniDebugInfo of a file; nil: there is none.
func (d *DebugFiles) miniDebug(m *image) (*image, error) {
	if m.mini.size == 0 {
		return nil, nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.spend(maxUnpacked); err != nil {
		return nil, fmt.Errorf("read %s: %w", miniDebugSection, err)
	}

	packed, err := m.bytes(m.mini, maxPacked)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", miniDebugSection, err)
	}
	raw, err := unpackXZ(packed)
	d.left += maxUnpacked - int64(len(raw))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", miniDebugSection, err)
	}

	mini, err := newImage(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", miniDebugSection, err)
	}
	return mini, nil
}

// errXZ is the refusal of packed data that are damaged, or that no linker's tools write.
var errXZ = errors.New("not one block of LZMA2 in a file of xz")

// unpackXZ unpacks the first block of a file of xz, which xz(1) writes as the only one
// (https://tukaani.org/xz/xz-file-format.txt). Package xz would allocate a dictionary of 4 GiB for a
// block that asks for it.
func unpackXZ(packed []byte) (raw []byte, err error) {
	const (
		magic       = "\xfd7zXZ\x00"
		headerBytes = 12
		sizesFlags  = 0xc0 // the header has the packed size, the unpacked size
		lzma2       = 0x21
	)
	if len(packed) < headerBytes+4 || !bytes.HasPrefix(packed, []byte(magic)) {
		return nil, errXZ
	}

	block := packed[headerBytes:]
	size, flags := (int(block[0])+1)*4, block[1]
	if block[0] == 0 || size > len(block) || flags&^sizesFlags != 0 { // more filters
		return nil, errXZ
	}

	filter := block[2:size]
	for flag := byte(0x40); flag != 0; flag <<= 1 {
		if flags&flag != 0 {
			_, n := binary.Uvarint(filter)
			filter = filter[max(0, n):]
		}
	}
	if len(filter) < 3 || filter[0] != lzma2 || filter[1] != 1 || filter[2] > 40 {
		return nil, errXZ
	}

	dictionary := uint64(2|filter[2]&1) << (filter[2]/2 + 11) // bytes
	return unpackLZMA2(block[size:], int(min(dictionary, maxUnpacked)))
}

// unpackLZMA2 unpacks maxUnpacked bytes at most. The decoder panics on no data that a fuzzer has
// made, but has calls of panic.
func unpackLZMA2(packed []byte, dictionary int) (raw []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			raw, err = nil, fmt.Errorf("%w: %v", errXZ, r)
		}
	}()

	config := lzma.Reader2Config{DictCap: dictionary}
	reader, err := config.NewReader2(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	raw, err = io.ReadAll(io.LimitReader(reader, maxUnpacked+1))
	if err == nil && len(raw) > maxUnpacked {
		err = fmt.Errorf("it unpacks to more than %d bytes", maxUnpacked)
	}
	return raw, err
}
