package kernel

import (
	"fmt"
	"sync"

	"github.com/allocscope/allocscope/bpf"
)

// producerProbes are the entries of the map of the same name: how the arguments of probes are read.
type producerProbes struct {
	mu      sync.Mutex
	cookies map[bpf.ProducerProbe]uint64
}

// ProducerCookie returns the attach cookie of a producer's probe with these arguments.
func (k *Kernel) ProducerCookie(arguments bpf.ProducerProbe) (uint64, error) {
	p := &k.producers
	p.mu.Lock()
	defer p.mu.Unlock()

	if cookie, ok := p.cookies[arguments]; ok {
		return cookie, nil
	}
	cookie := uint64(len(p.cookies) + 1)
	if err := k.ProducerProbes.Put(cookie, arguments); err != nil {
		return 0, fmt.Errorf("describe the arguments of a probe: %w", err)
	}
	if p.cookies == nil {
		p.cookies = make(map[bpf.ProducerProbe]uint64)
	}
	p.cookies[arguments] = cookie
	return cookie, nil
}
