package objects

import (
	"context"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
)

// LookAt looks at the objects of a suspect, whatever a search has found.
func (h *Heap) LookAt(ctx context.Context, addresses []uint64) (keeper.Look, error) {
	l := keeper.Look{Lost: addresses, Samples: len(addresses)}
	err := h.look(newBudget(ctx, time.Minute), []*keeper.Look{&l})
	return l, err
}
