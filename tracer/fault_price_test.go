package tracer_test

// What source fault costs: `make bench`.

import (
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// sampling attaches source fault alone; a process that the session does not trace pays for the event, and for the look
// whether it is traced.
func sampling(name string, s *tracer.Session, interval uint64) way {
	return way{name, func(b *testing.B, _ int) func() {
		source, links := s.AttachFaults(interval)
		if !source.Attached {
			b.Fatal(source.Reason)
		}
		return func() {
			if err := probe.Close(links); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// nsPerFault asks the program that faults for one measurement.
func nsPerFault(b *testing.B, target *tracertest.Target) float64 {
	target.Say("price 1024")
	ns, err := strconv.ParseFloat(target.Await("done")[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns
}

func BenchmarkAPageFault(b *testing.B) {
	target, _, _ := startFaults(b)
	other := tracertest.Start(b, tracertest.Build(b, "pair.c"))
	other.Await("ready")
	traced, untraced := open(b, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}}), open(b, tracer.Options{PID: other.PID(), Sources: []string{"mapping"}})
	ways := []way{
		sampling("traced/interval=512KiB", traced, 512<<10),
		sampling("traced/interval=64KiB", traced, 64<<10),
		sampling("traced/interval=1", traced, 1),
		sampling("untraced/interval=512KiB", untraced, 512<<10),
	}
	report(b, ways, compare(b, ways, target.PID(), func() float64 { return nsPerFault(b, target) }), "ns/fault", "")
}
