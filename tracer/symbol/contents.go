package symbol

import (
	"bytes"
	"slices"
)

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

// HasText reports whether one of some texts is among the constants of the file, in .rodata. It is false
// where the constants are too large to be searched.
func (f *File) HasText(texts []string) bool {
	constants, err := f.image.bytes(f.image.constants, maxConstants)
	return err == nil && slices.ContainsFunc(texts, func(text string) bool {
		return bytes.Contains(constants, []byte(text))
	})
}
