package tracertest

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
)

// BytesRead is how many bytes this process has read so far, by the kernel's account.
func BytesRead(t testing.TB) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(t, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &bytes)
	must(t, err)
	return bytes
}

// BuildInflated builds a library at a path that claims names of exported symbols which fill a file of
// so many bytes, nearly all of them a hole. The dynamic linker reads no section headers, and loads it.
func BuildInflated(t testing.TB, path string, size int64) {
	t.Helper()
	library, err := os.ReadFile(Build(t, "preload.c", "-shared", "-fPIC"))
	must(t, err)
	must(t, os.WriteFile(path, library, 0o700))

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	image, err := elf.NewFile(file)
	must(t, err)
	names := image.SectionByType(elf.SHT_DYNSYM).Link
	const headerSize, sizeField = 64, 32                        // of Elf64_Shdr, and sh_size in it
	sections := int64(binary.LittleEndian.Uint64(library[40:])) // e_shoff of Elf64_Ehdr

	claimed := uint64(size) - image.Sections[names].Offset
	at := sections + int64(names)*headerSize + sizeField
	_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, claimed), at)
	must(t, err)
	must(t, file.Truncate(size))
}
