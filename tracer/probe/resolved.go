package probe

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/process"
)

// maxResolved bounds the processes whose functions are kept.
const maxResolved = 64

// A resolution is what Resolve has found in the files of a process: those in search order, and
// others.
type resolution struct {
	order, others []process.Mapping
	found         []FileSites
}

// A resolutions keeps the latest resolution of each process: several tasks ask for the allocator
// of a target, and reading its libraries takes tenths of a second.
type resolutions struct {
	mu sync.Mutex
	by map[*process.Process]resolution
}

var resolved resolutions

// of returns what Resolve has found in the same mappings of the same files; nil: nothing.
func (r *resolutions) of(p *process.Process, order, others []process.Mapping) []FileSites {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.by[p]
	if !slices.Equal(known.order, order) || !slices.Equal(known.others, others) {
		return nil
	}
	found := slices.Clone(known.found)
	for i := range found {
		found[i].Sites = slices.Clone(found[i].Sites)
	}
	return found
}

// keep keeps a resolution. It forgets all others where there are too many, as their processes may
// be closed.
func (r *resolutions) keep(p *process.Process, found resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil || len(r.by) >= maxResolved {
		r.by = make(map[*process.Process]resolution)
	}
	r.by[p] = found
}
