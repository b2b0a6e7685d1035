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

// FindText returns the first of some texts that is among the constants of the file, in .rodata;
// empty: none, or the constants are too large to be searched.
func (f *File) FindText(texts []string) string {
	constants, err := f.image.bytes(f.image.constants, maxConstants)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(texts, func(text string) bool {
		return bytes.Contains(constants, []byte(text))
	})
	if i < 0 {
		return ""
	}
	return texts[i]
}
