package symbol

import "bytes"

// goBuildMagic begins the section .go.buildinfo, which the Go linker writes into every program, also
// into stripped ones: https://pkg.go.dev/debug/buildinfo
var goBuildMagic = []byte("\xff Go buildinf:")

// IsGo reports whether the Go linker has made the file.
func (f *File) IsGo() bool {
	info := f.image.goBuild
	if info.size < uint64(len(goBuildMagic)) {
		return false
	}
	size := uint64(len(goBuildMagic))
	begin, err := f.image.bytes(span{info.off, size}, size)
	return err == nil && bytes.Equal(begin, goBuildMagic)
}

// Constants reads the constants of the file, .rodata. It returns nil where they are too large to be
// searched, or damaged.
func (f *File) Constants() []byte {
	constants, err := f.image.bytes(f.image.constants, maxConstants)
	if err != nil {
		return nil
	}
	return constants
}
