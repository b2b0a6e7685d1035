package growth

// A turnover is what parts of the variances of two moments are in that of the change. Objects that are alive at both moments
// cancel: of the end counts what was born since, of the start what has been freed.
type turnover struct{ born, freed float64 }

// turnoverOf is that of what a stack holds, startBin being the last bin of births up to the first moment. Where births are not
// known, all counts.
func turnoverOf(start, end *Holding, startBin int) turnover {
	if end.Variance <= 0 || len(end.Births) == 0 {
		return turnover{1, 1}
	}
	var older, younger float64
	for _, b := range end.Births {
		if b.Bin <= startBin {
			older += b.Variance
		} else {
			younger += b.Variance
		}
	}
	return turnover{born: shareOf(younger, end.Variance), freed: 1 - shareOf(older, start.Variance)}
}

// variance of the change, in bytes².
func (e *ledgerEntry) variance(t turnover) float64 {
	return max(0, t.born*e.end.ResidentVariance+t.freed*e.start.ResidentVariance)
}

// variances of the changes of all entries, in bytes².
func (l *ledger) variances() []float64 {
	heaps := l.heapTurnovers()
	variances := make([]float64, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		t := turnoverOf(&e.start, &e.end, l.startBin)
		if of, ok := heaps[e.stack.PID]; ok && e.kind.isOfHeap() {
			t = of
		}
		variances[i] = e.variance(t)
	}
	return variances
}

// isOfHeap is true of what living objects leave of the heap.
func (k Kind) isOfHeap() bool { return k == KindRetained || k == KindUntold || k == KindBefore }

// heapTurnovers are those of all that lives on the heap of a process, by PID. What objects leave of an arena has their
// variance, but no births. In sum over the arenas, the error of what they leave is that of what is alive; how it is split
// takes their turnover to be the same.
func (l *ledger) heapTurnovers() map[int]turnover {
	type variance struct{ born, end, freed, start float64 }
	sums := make(map[int]variance)
	for i := range l.entries {
		e := &l.entries[i]
		if e.kind != KindHeap {
			continue
		}
		t, sum := turnoverOf(&e.start, &e.end, l.startBin), sums[e.stack.PID]
		sum.born += t.born * e.end.ResidentVariance
		sum.end += e.end.ResidentVariance
		sum.freed += t.freed * e.start.ResidentVariance
		sum.start += e.start.ResidentVariance
		sums[e.stack.PID] = sum
	}
	turnovers := make(map[int]turnover, len(sums))
	for pid, sum := range sums {
		turnovers[pid] = turnover{born: shareOf(sum.born, sum.end), freed: shareOf(sum.freed, sum.start)}
	}
	return turnovers
}
