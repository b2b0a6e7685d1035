package source_test

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/source"
)

func TestFaultPeriod(t *testing.T) {
	for interval, want := range map[uint64]uint64{
		0: 1, 1: 1, 4096: 1, 8192: 2, 64 << 10: 17, 512 << 10: 131, kernel.MaxInterval: 262_147,
	} {
		if got := source.FaultPeriod(interval); got != want {
			t.Errorf("at %d bytes: one in %d, want %d", interval, got, want)
		}
	}
}
