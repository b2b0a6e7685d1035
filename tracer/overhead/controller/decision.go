package controller

import "time"

// How long to wait for the next reading, in seconds: while probes are open a storm has to be noticed.
const (
	openWait   = 0.1
	tensorWait = 0.25
	closedWait = 1.0
	leastWait  = 0.005
)

func (g *Governor) decision() Decision {
	isOpen := g.begun && (g.mode == Full || g.window.phase == opened)
	d := Decision{
		Heap:           g.options.Heap && isOpen,
		Tensor:         g.options.Tensor && (isOpen || g.tensor.alone),
		Interval:       g.interval(),
		TensorInterval: g.interval(),
		Blocks:         g.blocks.isOpen,
		BlockInterval:  g.blocks.interval,
		Wait:           duration(max(g.wait(), leastWait)),
	}
	if g.besides() && g.tensor.alone {
		d.TensorInterval = g.tensor.interval // they are open outside of windows too
	}
	return d
}

// interval in force.
func (g *Governor) interval() uint64 {
	if g.begun && g.mode != Full {
		return g.windowInterval
	}
	return g.fullInterval
}

func (g *Governor) wait() float64 {
	switch {
	case !g.options.Heap && !g.options.Tensor:
		return closedWait
	case !g.begun, g.mode == Full, g.window.phase == settling:
		return openWait
	case g.window.phase == opened:
		return min(openWait, g.window.from+g.window.length-g.now)
	case g.tensor.alone:
		return min(tensorWait, g.pause(g.plan()))
	}
	return min(closedWait, g.pause(g.plan()))
}

// Mode in which the allocator is watched.
func (g *Governor) Mode() Mode { return g.mode }

// Interval in force, in bytes.
func (g *Governor) Interval() uint64 { return g.interval() }

// Changes since this was last asked, in the order of time.
func (g *Governor) Changes() []Change {
	changes := g.changes
	g.changes = nil
	return changes
}

// Totals since counting began.
func (g *Governor) Totals() Totals {
	open := g.open
	switch {
	case g.begun && g.mode == Full:
		open += g.now - g.openedAt
	case g.window.phase == opened:
		open += g.now - g.window.from
	}
	return Totals{
		InProbes:   duration(g.inProbes),
		StepBefore: duration(g.steps.first()), StepSince: duration(g.steps.since()), StepBetween: duration(g.steps.between()),
		Windows: g.windows, Open: duration(open),
	}
}

func duration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), 1e9) * float64(time.Second))
}
