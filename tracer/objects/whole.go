package objects

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// redZone is how many bytes below the stack pointer a function may use (x86-64 psABI).
	redZone = 128
	// maxMissing bounds the pages that were not read and are asked for again.
	maxMissing = 1 << 16
)

// A wholeMemory is all memory of a process that may hold a pointer, bulk data included: a proof
// that nothing refers to a block needs all of it.
type wholeMemory struct {
	*memory
	// swapped and unread are bytes that may hold pointers and were not read.
	swapped, unread uint64
	hasDevice       bool     // it has mapped a device, which may hold pointers
	missing         []uint64 // pages in RAM that could not be read
}

// notMemory are mappings of the kernel's own, in which a process has no words.
var notMemory = map[string]bool{
	"[vvar]": true, "[vvar_vclock]": true, "[vdso]": true, "[vsyscall]": true, "[uprobes]": true,
}

// newWholeMemory returns all memory by the heaps and roots of the last refresh.
func (h *Heap) newWholeMemory(b *budget) (*wholeMemory, error) {
	found := h.memory
	w := &wholeMemory{memory: newMemory(h.process, h.reader)}
	w.maps = found.maps
	w.cached, w.others, w.poolSize, w.budget = found.cached, found.others, found.poolSize, b
	w.mmapped = slices.Clone(found.mmapped)

	candidates := h.roots.regions()
	var taken []mem.Span
	for _, s := range h.heaps.Spans {
		candidates = append(candidates, region{s, regionHeap})
	}
	for _, r := range candidates {
		taken = append(taken, r.Span)
	}
	taken = append(taken, h.roots.deadStack(found.maps))

	rest := mem.MergeSpans(taken)
	for kind, spans := range w.mappedSpans() {
		for _, s := range mem.MergeSpans(spans).Subtract(rest) {
			candidates = append(candidates, region{s, kind})
		}
	}
	w.regions = disjoint(candidates)
	if err := w.findPages(); err != nil {
		return nil, err
	}
	w.findParts()
	return w, nil
}

// mappedSpans returns the mappings that may hold pointers, by the kind of their regions.
func (w *wholeMemory) mappedSpans() map[regionKind][]mem.Span {
	kinds := make(map[regionKind][]mem.Span)
	for _, v := range w.maps {
		kind := regionOther
		switch {
		case notMemory[v.Path]:
			continue
		case isDevice(v):
			w.hasDevice = true
			continue
		case v.Execute && !v.Shared:
			kind = regionCode // addresses are part of instructions
		case !v.IsFile() && !v.Shared && v.Read && v.Write:
			kind = regionAnonymous
		}
		kinds[kind] = append(kinds[kind], mem.Span{Start: v.Start, End: v.End})
	}
	return kinds
}

// isDevice reports whether a mapping is of a device, or of the kernel's own memory: it may hold
// pointers in a form that is not known, and cannot always be read.
func isDevice(v process.Mapping) bool {
	path := v.Path
	isMemory := strings.HasPrefix(path, "/dev/shm/") || strings.HasPrefix(path, "/dev/zero") ||
		strings.HasPrefix(path, "/dev/hugepages/")
	return strings.HasPrefix(path, "/dev/") && !isMemory || strings.HasPrefix(path, "anon_inode:") ||
		strings.HasPrefix(path, "/dmabuf:") || path == "/[aio]" || path == "/[aio] (deleted)"
}

// isInMemory reports whether the pages of a shared mapping are in memory alone. A file on a disk is
// the other kind.
func isInMemory(v process.Mapping) bool {
	return v.Tmpfs || !v.IsFile() || strings.HasPrefix(v.Path, "/dev/zero") ||
		strings.HasPrefix(v.Path, "/memfd:") || strings.HasPrefix(v.Path, "/SYSV")
}

// findPages finds the pages that hold memory. Unchanged pages of a private file are
// the file's: they have no pointers.
func (w *wholeMemory) findPages() error {
	pagemap, err := w.process.OpenPagemap()
	if err != nil {
		return err
	}
	defer pagemap.Close()
	pagemap.SetMappings(w.maps)

	hasSwap := usesSwap()
	var resident []mem.Span
	for _, v := range w.maps {
		if notMemory[v.Path] || isDevice(v) {
			continue
		}
		runs, err := runsOf(pagemap, v)
		if errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err != nil {
			w.unread += v.Len()
		}

		found := uint64(0)
		for _, run := range runs {
			switch {
			case run.File && !v.Shared:
			case run.Swapped:
				w.swapped += run.Len()
			default:
				found += run.Len()
				resident = append(resident, mem.Span{
					Start: max(v.Start, run.Start&^(pymalloc.MaxPoolSize-1)),
					End:   min(v.End, mem.AlignUp(run.End, pymalloc.MaxPoolSize)),
				})
			}
		}

		// A page of shared memory may be in memory, or in swap, and in no page table.
		switch absent := v.Len() - min(v.Len(), found); {
		case !v.Shared || absent == 0:
		case !isInMemory(v) && v.Write:
			w.unread += absent
		case isInMemory(v) && hasSwap:
			w.swapped += absent
		}
	}

	w.spans = mem.MergeSpans(resident)
	return nil
}

// runsOf returns the pages of a mapping that hold memory.
func runsOf(pagemap *process.Pagemap, v process.Mapping) ([]mem.Run, error) {
	if v.IsFile() && !v.Shared {
		return pagemap.Runs(nil, v.Start, v.End)
	}
	return pagemap.AnonymousRuns(nil, v.Start, v.End)
}

// usesSwap reports whether any memory of the machine is swapped out: proc_swaps(5).
func usesSwap() bool {
	raw, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return true
	}
	for i, line := range strings.Split(string(raw), "\n") {
		const used = 3 // Filename, Type, Size, Used, Priority
		if fields := strings.Fields(line); i > 0 && len(fields) > used && fields[used] != "0" {
			return true
		}
	}
	return false
}

// visitWhole reads all memory, and notes the pages that could not be read.
func (w *wholeMemory) visitWhole(visit func(*piece)) error {
	err := w.each(nil, func(p *piece) error {
		for i, isPresent := range p.Present {
			at := p.Start + uint64(i)*process.PageSize
			if !isPresent && len(w.missing) < maxMissing {
				w.missing = append(w.missing, at)
			}
		}
		visit(p)
		if w.budget.isOver {
			return errLate
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.checkMissing()
}

// added returns the memory that has come since the pages were listed: a table that grew meanwhile
// may have moved there. Nothing is known of its blocks.
func (w *wholeMemory) added() (*wholeMemory, error) {
	maps, err := w.process.Maps()
	if err != nil {
		return nil, err
	}
	now := &wholeMemory{memory: newMemory(w.process, w.reader)}
	now.maps, now.budget = maps, w.budget

	if err := now.findPages(); err != nil {
		return nil, err
	}
	now.spans = now.spans.Subtract(w.spans)
	for kind, spans := range now.mappedSpans() {
		if kind == regionAnonymous {
			kind = regionOther
		}
		for _, s := range mem.MergeSpans(spans) {
			now.regions = append(now.regions, region{s, kind})
		}
	}
	now.regions = disjoint(now.regions)

	now.findParts()
	return now, nil
}

// checkMissing counts the pages that were not read though they are in RAM. The process unmaps
// memory meanwhile, and pools are read whole, with pages that nothing was written to.
func (w *wholeMemory) checkMissing() error {
	pagemap, err := w.process.OpenPagemap()
	if err != nil {
		return err
	}
	defer pagemap.Close()
	pagemap.SetMappings(w.maps)

	var spans []mem.Span
	for _, at := range w.missing {
		spans = append(spans, mem.Span{Start: at, End: at + process.PageSize})
	}
	w.missing = nil
	for _, s := range mem.MergeSpans(spans) {
		runs, err := pagemap.AnonymousRuns(nil, s.Start, s.End)
		if err != nil {
			return err
		}
		for _, run := range runs {
			addresses := make([]uint64, run.Len()/process.PageSize)
			for i := range addresses {
				addresses[i] = run.Start + uint64(i)*process.PageSize
			}
			w.unread += w.stillUnread(addresses)
		}
	}
	return nil
}

// stillUnread returns how many bytes of pages cannot be read now, though they were in RAM a moment
// ago.
func (w *wholeMemory) stillUnread(pages []uint64) (bytes uint64) {
	for len(pages) > 0 {
		some := pages[:min(len(pages), int(pieceBytes/process.PageSize))]
		pages = pages[len(some):]
		present, err := w.reader.PeekPagesAt(some, w.buffer[:uint64(len(some))*process.PageSize])
		for i := range some {
			if err != nil || !present[i] {
				bytes += process.PageSize
			}
		}
	}
	return bytes
}

// deadStack returns the part of the first thread's stack below its stack pointer: nobody uses it.
func (r *roots) deadStack(maps []process.Mapping) mem.Span {
	i := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Path == "[stack]" })
	if i < 0 {
		return mem.Span{}
	}
	for _, s := range r.stacks {
		if s.Known && s.Start >= maps[i].Start+redZone && s.Start < maps[i].End {
			return mem.Span{Start: maps[i].Start, End: s.Start - redZone}
		}
	}
	return mem.Span{}
}

// readHeld reads the words in registers and in the kernel, and returns the premise that fails.
func (p *proof) readHeld() keeper.Sweep {
	h := p.heap
	if runtime := h.roots.statics.Runtime(); runtime != "" {
		return keeper.Sweep{Premise: keeper.PremiseRuntime, Runtime: runtime}
	}
	threads, err := h.registers()
	if err != nil || len(threads) == 0 {
		return keeper.Sweep{Premise: keeper.PremiseRegisters}
	}
	for _, t := range threads {
		p.held = append(p.held, t.Words[:]...)
	}

	held, err := h.process.HeldByKernel()
	if err != nil {
		return keeper.Sweep{Premise: keeper.PremiseKernel}
	}
	p.held = append(p.held, held.Words...)
	p.isHidden = held.IsHidden || p.memory.hasDevice
	return p.unread()
}

// registers returns the user registers of all threads. The kernel counts threads by their IDs in
// the initial PID namespace, which are not known in another one.
func (h *Heap) registers() ([]bpf.ThreadRegisters, error) {
	if _, inode, err := kernel.PIDNamespace(); err != nil || inode != 0 {
		return nil, cmp.Or(err, kernel.ErrPIDNamespace)
	}
	return bpf.ReadRegisters(uint32(h.process.PID))
}

// unread returns the premise that memory which was not read fails.
func (p *proof) unread() keeper.Sweep {
	switch w := p.memory; {
	case w.swapped > 0:
		return keeper.Sweep{Premise: keeper.PremiseSwapped, Bytes: w.swapped}
	case w.unread > 0:
		return keeper.Sweep{Premise: keeper.PremiseUnread, Bytes: w.unread}
	}
	return keeper.Sweep{}
}

// readIndex reads all memory for the blocks that later levels are likely to search for. The index
// proves nothing: a pass searches for each of them.
func (p *proof) readIndex() error {
	p.index = p.heap.newIndex(p.memory.memory, nil)
	err := p.index.read(nil)
	if errors.Is(err, errIndexFull) {
		p.index.isCut, err = true, nil
	}
	return err
}

// ahead adds to the members of a level the blocks that lead to them by the index, and so on: one
// pass searches for all, and not one for each level.
func (p *proof) ahead(frontier []*member) []*member {
	if p.index == nil || p.index.isCut {
		return frontier
	}
	seen := make(map[*member]bool, len(frontier))
	for _, m := range frontier {
		seen[m] = true
	}

	for i := 0; i < len(frontier) && len(frontier) < maxAhead && !p.memory.budget.isSpent(); i++ {
		p.nodes.eachTarget(frontier[i].node, func(address uint64) {
			words, _ := p.index.referers(address)
			for _, at := range words[:min(len(words), maxReferers)] {
				r, ok := p.memory.regionAt(at)
				n := p.nodes.holder(p.index, at, r)
				if !ok || n == nil || !p.nodes.keep(n) {
					continue
				}
				if m := p.memberOf(n); !m.kept && !m.searched && !seen[m] {
					seen[m] = true
					frontier = append(frontier, m)
				}
			}
		})
	}
	return frontier
}
