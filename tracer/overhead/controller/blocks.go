package controller

// blocks of torch's allocator for CUDA: each is probed when it is handed out and when it comes back, unless that takes too much.
// A part of the time it takes cannot be decided: what has been closed is not opened again, because what came back meanwhile would
// be taken for living.
type blocks struct {
	isOpen   bool
	interval uint64
	lately   spending // in this span
	over     spending // in the spans before it, as far as each of them took too much
}

const (
	blockPart = 0.75 // of the limit, which blocks may take alone
	blockSpan = 10   // s over which they have to keep to it
	// blockPatience is how long a time they may take all of the limit for, in s, before their probes are closed: what a minute allows. A burst
	// that is over by then changes nothing.
	blockPatience = 60
	// coarsestBlocks is the largest interval that is chosen, in bytes: a leak of blocks is soon larger.
	coarsestBlocks = 64 << 20
)

// watchBlocks takes fewer samples of blocks, or closes their probes, where they take too much.
func (g *Governor) watchBlocks(s spending) {
	b := &g.blocks
	if !b.isOpen {
		return
	}
	b.lately.add(s)
	if b.lately.elapsed < blockSpan {
		return
	}
	span := b.lately
	b.lately = spending{}
	if span.blocks <= blockPart*g.options.Limit*span.work {
		b.over = spending{}
		return
	}
	b.over.add(span)
	took := percent(span.blocks / max(span.work, 1e-9))
	switch {
	case g.isAuto() && b.interval < coarsestBlocks && span.blockWalks > span.blocks/3:
		b.over = spending{}
		b.interval = min(4*b.interval, coarsestBlocks)
		g.change("blocks on GPUs take %s of the traced CPU time: one sample in %s", took, size(b.interval))
	case b.over.blocks*b.over.elapsed > blockPatience*g.options.Limit*b.over.work:
		b.isOpen = false
		g.change("blocks on GPUs take %s of the traced CPU time (%s): their totals alone are read from now on",
			took, calls(span.blockEvents/max(span.elapsed, 1e-3)))
	}
}
