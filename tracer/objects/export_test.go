package objects

import (
	"context"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
)

// SweepFor sweeps for the objects of a suspect.
func (h *Heap) SweepFor(ctx context.Context, addresses []uint64) (keeper.Sweep, error) {
	if err := h.refresh(); err != nil {
		return keeper.Sweep{}, err
	}
	l := keeper.Sweep{Lost: addresses, Samples: len(addresses)}
	err := h.sweep(newBudget(ctx, time.Minute), []*keeper.Sweep{&l})
	return l, err
}
