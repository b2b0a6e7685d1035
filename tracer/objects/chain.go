package objects

// A NodeLink is the reference of a node of a linked list by the word at its link offset.
type NodeLink struct{ Node, Next uint64 }

// A ChainEnd is why a chain goes no further back.
type ChainEnd uint8

// Ends of chains.
const (
	// ChainHead: no other node refers to the last one. The keeper of the list refers to it.
	ChainHead ChainEnd = iota
	// ChainCycle: the first node refers to the last one. The list is circular: its keeper may refer
	// to any of its nodes.
	ChainCycle
	// ChainFork: several nodes refer to the last one. It is no list from there on.
	ChainFork
)

// Chains are the linked lists that nodes of one kind form: chunks of one size or objects of one
// type, by the word at one offset.
type Chains struct {
	previous map[uint64]uint64
	forks    map[uint64]bool // nodes that several nodes refer to
}

// NewChains returns the chains of links. If a node has several links, it takes the first. A link of
// a node to itself is none: an empty list has it.
func NewChains(links []NodeLink) *Chains {
	next := make(map[uint64]uint64, len(links))
	for _, l := range links {
		if _, ok := next[l.Node]; !ok {
			next[l.Node] = l.Next
		}
	}

	c := &Chains{previous: make(map[uint64]uint64, len(next)), forks: make(map[uint64]bool)}
	for node, to := range next {
		_, isNode := next[to]
		_, isKnown := c.previous[to]
		switch {
		case !isNode || to == node:
		case isKnown:
			c.forks[to] = true
		default:
			c.previous[to] = node
		}
	}

	return c
}

// Back returns the nodes from one back to the head of its list: each is referred to by the one
// after it. The first is the node itself, even if it is not known.
func (c *Chains) Back(node uint64) (nodes []uint64, end ChainEnd) {
	for at := node; ; {
		nodes = append(nodes, at)
		previous, ok := c.previous[at]
		switch {
		case !ok:
			return nodes, ChainHead
		case c.forks[at]:
			return nodes, ChainFork
		case previous == node:
			return nodes, ChainCycle
		}
		at = previous
	}
}
