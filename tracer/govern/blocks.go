package govern

// blocks of torch's allocator for CUDA: each is probed when it is handed out and when it comes back, unless that takes too much.
// A part of the time it takes cannot be decided: what has been closed is not opened again, because what came back meanwhile would
// be taken for living.
type blocks struct {
	isOpen   bool
	interval uint64
	lately   spending // since the last decision
}

const (
	blockPart     = 0.75 // of the limit, which blocks may take alone
	blockSpan     = 10   // s over which they have to keep to it before they are sampled more coarsely,
	blockPatience = 30   // and before their probes are closed: a burst, as of compiling, is over by then
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
	took, may := b.lately.blocks, blockPart*g.options.Limit*b.lately.work
	coarser := g.isAuto() && b.interval < coarsestBlocks && b.lately.blockWalks > took/3
	switch {
	case took <= may:
		b.lately = spending{}
	case coarser:
		b.interval = min(4*b.interval, coarsestBlocks)
		g.change("blocks on GPUs take %s of the traced CPU time: one sample in %s", percent(took/max(b.lately.work, 1e-9)), size(b.interval))
		b.lately = spending{}
	case b.lately.elapsed >= blockPatience:
		b.isOpen = false
		g.change("blocks on GPUs take %s of the traced CPU time (%s): their totals alone are read from now on",
			percent(took/max(b.lately.work, 1e-9)), calls(b.lately.blockEvents/max(b.lately.elapsed, 1e-3)))
	}
}
