package tracer

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// A progressReader reads how far the traced processes have come.
type progressReader struct {
	// read reads the meter; costs are the costs of the events that it counts. nil: the overhead has
	// no limit.
	read     func() (controller.Reading, error)
	costs    controller.Costs
	recorded controller.Reading // by the last addTo
}

// addTo adds the progress since the last call.
func (p *progressReader) addTo(to *estimate.Progress) {
	if p.read == nil {
		return
	}
	now, err := p.read()
	if err != nil {
		return // the next call adds it
	}
	to.Add(p.costs, p.recorded, now)
	p.recorded = now
}

// maxReturnGrace is how long the probes stay attached at the end of a period at most, so that
// sampled calls that began in it return under a probe. A call counts where it begins. To lose the
// slow ones would bias the estimates of large objects.
const maxReturnGrace = 256 * time.Millisecond

// callsUnderWay are the sampled calls of the heap that have begun and not ended.
type callsUnderWay struct {
	counters *ebpf.Map
	before   int64 // at the start of the period: returns that are not seen, and tensors
}

// begin begins a period.
func (c *callsUnderWay) begin() { c.before = c.count() }

// await waits for the sampled calls that have begun in the period.
func (c *callsUnderWay) await() {
	for wait := time.Millisecond; wait < maxReturnGrace; wait *= 2 { // 1 + 2 + 4 ... ms
		time.Sleep(wait)
		if c.count() <= c.before {
			return
		}
	}
}

// count returns 0 if it cannot be read. The counters are not read at one moment, so that it may be
// negative.
func (c *callsUnderWay) count() int64 {
	values, err := kernel.ReadCounters(c.counters)
	if err != nil {
		return 0
	}
	return int64(values[bpf.CountBegun] - values[bpf.CountEnded])
}
