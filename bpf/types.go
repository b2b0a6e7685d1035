package bpf

import (
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"
)

// keepTypes is how long the types of the kernel are kept after their last use: a trace loads most
// of its programs within a second, and then has no use for ten megabytes.
const keepTypes = 5 * time.Second

// types are the types of the running kernel, for all that load programs. Each load on its own would
// decode them again, in 10 ms.
var types struct {
	mu    sync.Mutex
	cache *btf.Cache // nil: not in use
	drop  *time.Timer
}

// KernelTypes returns the types of the running kernel, decoded once for loads that follow each
// other.
func KernelTypes() *btf.Cache {
	types.mu.Lock()
	defer types.mu.Unlock()

	if types.cache == nil {
		types.cache = btf.NewCache()
		types.drop = time.AfterFunc(keepTypes, dropTypes)
	}
	types.drop.Reset(keepTypes)
	return types.cache
}

func dropTypes() {
	types.mu.Lock()
	defer types.mu.Unlock()
	types.cache = nil
}
