package glibc

import "github.com/allocscope/allocscope/tracer/mem"

// A FILE begins with _flags, whose upper half is _IO_MAGIC. The fields from _IO_read_ptr to
// _IO_save_end lead to its buffers.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/libio/bits/types/struct_FILE.h#L49
const (
	ioMagic, ioMagicMask = 0xfbad0000, 0xffff0000
	// StreamBytes are before the last of these fields.
	StreamBytes = 88
)

// IsStreamPointer reports whether a word may be a pointer of a FILE to its buffer, which has text
// and stale words. content are the StreamBytes before the word.
func IsStreamPointer(content []byte) bool {
	for at := 0; at+8 <= len(content); at += 8 {
		if mem.Word32(content, at)&ioMagicMask == ioMagic {
			return true
		}
	}
	return false
}
