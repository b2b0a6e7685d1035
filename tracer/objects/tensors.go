package objects

import (
	"context"
	"errors"
	"slices"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

const (
	maxTensors = 1 << 20 // that are read
	// secondsPerTensor is the expected cost of reading one.
	secondsPerTensor = 4e-6
)

// mostTensors is how many tensors are read: as many as the limit of the census pays for once more.
func (c *counter) mostTensors() int {
	if c.options.Limit == 0 {
		return maxTensors
	}
	return int(min(maxTensors, c.options.Limit.Seconds()/secondsPerTensor))
}

// noteTensor keeps the address of an object if it is a tensor.
func (c *counter) noteTensor(object uint64, t *typeInfo) {
	if t.isTensor && len(c.tensors) <= maxTensors {
		c.tensors = append(c.tensors, object)
	}
}

// findTensors notes the tensors in the windows that choose has left out; nil: there are none. How
// many storages there are does not follow from some of the tensors, as several may refer to one. So
// it reads the pools of the sizes that tensors have, by their headers.
func (c *counter) findTensors(choose func(mem.Span) bool) error {
	c.tensorsKnown = choose == nil
	sizes := c.tensorSizes()
	if choose == nil || len(sizes) == 0 || c.heap.memory.others != nil {
		return nil
	}
	c.tensorsKnown = true

	var pools []uint64
	m := c.heap.memory
	size := m.poolSize
	for _, p := range m.parts {
		if m.regions[p.region].kind != regionAnonymous || choose(p.Span) {
			continue
		}
		for at := mem.AlignUp(p.Start, size); at+size <= p.End; at += size {
			pools = append(pools, at)
		}
		if len(pools) >= headersAtOnce {
			if err := c.findTensorsIn(pools, sizes); err != nil {
				return err
			}
			pools = pools[:0]
		}
	}
	return c.findTensorsIn(pools, sizes)
}

// learnTensorTypes finds the types of tensors by their names, as a share of the memory may have
// none of them.
func (c *counter) learnTensorTypes() {
	for dict, m := range c.heap.roots.modules {
		class, ok := torch.TensorClasses[m.Name]
		if !ok {
			continue
		}
		if value, ok := c.heap.python.Lookup(dict, class, maxNamespace); ok {
			c.heap.types.at(value)
		}
	}
}

// tensorSizes returns the blocks of pymalloc that tensors take, in bytes.
func (c *counter) tensorSizes() map[uint64]bool {
	c.learnTensorTypes()
	sizes := make(map[uint64]bool)
	for _, t := range c.heap.types.known {
		if t.isTensor {
			sizes[pymalloc.BlockSizeOf(t.head+t.basicsize)] = true
		}
	}
	return sizes
}

// findTensorsIn notes the tensors in some pools, which must have blocks of some sizes.
func (c *counter) findTensorsIn(pools []uint64, sizes map[uint64]bool) error {
	m := c.heap.memory
	size := m.poolSize
	headers, err := m.reader.Peek(pools, pymalloc.HeaderSize)
	if err != nil {
		return err
	}

	var wanted []uint64 // pools
	for i, header := range headers {
		if header != nil && sizes[pymalloc.BlockSizeIn(header)] {
			wanted = append(wanted, pools[i])
		}
	}

	pagesOfPool := max(1, size/process.PageSize) // a page may hold several pools
	for batch := range slices.Chunk(wanted, len(m.buffer)/int(pagesOfPool*process.PageSize)) {
		if err := c.readPools(batch, pagesOfPool); err != nil {
			return err
		}
	}
	return nil
}

// readPools reads pools, and notes the tensors in them.
func (c *counter) readPools(pools []uint64, pagesOfPool uint64) error {
	m := c.heap.memory
	var addresses []uint64 // of pages
	for _, pool := range pools {
		for i := range pagesOfPool {
			addresses = append(addresses, pool&^(process.PageSize-1)+i*process.PageSize)
		}
	}

	if m.budget.check() {
		return errLate
	}
	content := m.buffer[:uint64(len(addresses))*process.PageSize]
	present, err := m.reader.PeekPagesAt(addresses, content)
	if err != nil {
		return err
	}

	m.read += uint64(len(content))
	for i, pool := range pools {
		at := uint64(i)*pagesOfPool*process.PageSize + pool%process.PageSize
		p := &piece{
			Piece: mem.Piece{
				Start: pool, Bytes: content[at:][:m.poolSize:m.poolSize],
				Present: present[uint64(i)*pagesOfPool:][:pagesOfPool],
			},
			memory: m, region: region{kind: regionAnonymous},
		}
		c.heap.types.prepare([]*piece{p})
		c.noteTensors(p)
	}
	return nil
}

// noteTensors keeps the addresses of the tensors of a piece that is one pool.
func (c *counter) noteTensors(p *piece) {
	found, isChanging := p.poolAt(p.Start)
	if isChanging {
		c.result.Inconsistent++
	}
	if found == nil {
		return
	}

	for span := range found.Live {
		b := block{span, blockPool}
		object, t := c.heap.types.objectIn(b, p.At(b.Start, found.BlockSize))
		if t == nil || !t.isTensor {
			continue
		}
		c.noteTensor(object, t)
		total := c.total(t)
		total.exact++
		total.exactBytes += float64(b.Len())
		c.sample(total, object, false)
	}
}

// readTensors reads the tensors that were noted.
func (c *counter) readTensors(ctx context.Context) error {
	total := &c.result.Tensors
	total.InCPPOnly = -1
	switch {
	case !torch.Loaded(c.heap.memory.maps):
		total.Unknown = census.NoTorch
		return nil
	case !c.tensorsKnown:
		total.Unknown = census.PartRead
		return nil
	case len(c.tensors) > c.mostTensors():
		total.Unknown, total.Most = census.TooMany, c.mostTensors()
		return nil
	}

	tensors, err := torch.Read(ctx, c.heap.process, c.tensors)
	layout, isLayout := errors.AsType[*torch.LayoutError](err)
	switch {
	case errors.Is(err, torch.ErrNotLoaded):
		total.Unknown = census.NoTorch
		return nil
	case isLayout:
		total.Unknown = census.UnknownLayout
		total.Fitting, total.Checked = layout.Fitting, layout.Checked
		return nil
	case err != nil:
		return err
	}

	total.Groups, c.result.Storages = torch.Groups(tensors.Known)
	return nil
}
