package liveness

import (
	"errors"
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// An Allocator is what is known of the glibc of a process. It holds until the process executes another program.
type Allocator struct {
	main   uint64 // address of the main arena
	layout layout
	key    uint64 // of objects in thread caches, from 2.34 on; 0: none was seen yet
	loose  bool   // thread caches have large chunks, and give one where less would do
}

// Reasons for which nothing can be told of a process's objects.
var (
	ErrNotGlibc = errors.New("its malloc is not glibc's")
	ErrNoArena  = errors.New("no arena of malloc in a layout that is known (glibc 2.30 to 2.43 are)")
)

const maxData = 16 << 20 // bytes of variables that are searched

// Find looks at the malloc that a process uses. The error wraps one of the reasons above, or those of probe.Resolve.
func Find(p *process.Process, maps []process.Mapping) (*Allocator, error) {
	library, err := mallocFile(p, maps)
	if err != nil {
		return nil, err
	}
	if glibc, err := isGlibc(p, library); err != nil || !glibc {
		return nil, errors.Join(err, fmt.Errorf("%w but that of %s", ErrNotGlibc, library.Path))
	}
	for _, s := range variables(maps, library.File()) {
		content, err := readAll(p, s)
		if err != nil {
			return nil, err
		}
		a, err := findArena(p, s.start, content)
		if a != nil {
			a.loose = strings.Contains(p.Environment(tunables)[tunables], "tcache_max")
		}
		if a != nil || err != nil {
			return a, err
		}
	}
	return nil, fmt.Errorf("find malloc's main arena in %s: %w", library.Path, ErrNoArena)
}

const tunables = "GLIBC_TUNABLES"

// mallocFile is the file whose malloc the process uses.
func mallocFile(p *process.Process, maps []process.Mapping) (process.Mapping, error) {
	targets, err := probe.Resolve(p, maps)
	if err != nil {
		return process.Mapping{}, err
	}
	for _, t := range targets {
		for _, s := range t.Sites {
			if s.Function.Name == "malloc" {
				return t.File, nil
			}
		}
	}
	return process.Mapping{}, probe.ErrNoAllocator
}

// isGlibc reports whether a file has a function that other C libraries lack.
func isGlibc(p *process.Process, m process.Mapping) (bool, error) {
	const function = "gnu_get_libc_version"
	f, err := p.OpenMapped(m)
	if err != nil {
		return false, err
	}
	defer f.Close()
	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return false, err
	}
	if _, ok := file.Export(function); ok {
		return true, nil
	}
	// A static program may do without it, but not without what free calls.
	found, err := file.Functions(symbol.Static, map[string]bool{function: true, "_int_free": true})
	return len(found) > 0, err
}

// variables gives the memory of a file's variables: what is mapped of it and can be written, and what follows.
func variables(maps []process.Mapping, file process.FileID) []span {
	var spans []span
	for _, m := range maps {
		last := len(spans) - 1
		follows := last >= 0 && spans[last].end == m.Start
		switch {
		case !m.Read || !m.Write || m.Share:
		case follows && (m.File() == file || m.Path == ""):
			spans[last].end = m.End
		case m.File() == file:
			spans = append(spans, span{m.Start, m.End})
		}
	}
	return spans
}

// readAll reads a stretch of memory; what cannot be read is zero.
func readAll(memory Memory, s span) ([]byte, error) {
	s.end = min(s.end, s.start+maxData)
	var addresses []uint64
	for at := s.start; at < s.end; at += pieceSize {
		addresses = append(addresses, at)
	}
	contents, err := memory.Peek(addresses, pieceSize)
	if err != nil {
		return nil, err
	}
	all := make([]byte, s.end-s.start)
	for i, content := range contents {
		copy(all[i*pieceSize:], content)
	}
	return all, nil
}
