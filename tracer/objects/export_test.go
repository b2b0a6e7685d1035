package objects

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// NumbersOf parses a line of a program: a name, and the numbers behind it.
func NumbersOf(t testing.TB, line string) (name string, numbers []uint64) {
	t.Helper()
	name, rest, _ := strings.Cut(line, " ")
	for field := range strings.FieldsSeq(rest) {
		numbers = append(numbers, tracertest.Must(strconv.ParseUint(field, 0, 64))(t))
	}
	return name, numbers
}

// SweepFor sweeps for the objects of a suspect.
func (h *Heap) SweepFor(ctx context.Context, addresses []uint64) (keeper.Sweep, error) {
	if err := h.refresh(); err != nil {
		return keeper.Sweep{}, err
	}
	l := keeper.Sweep{Lost: addresses, Samples: len(addresses)}
	err := h.sweep(newBudget(ctx, time.Minute), []*keeper.Sweep{&l})
	return l, err
}
