package objects

import (
	"fmt"
	"os"
)

func (s *search) dump(n *node) {
	fmt.Printf("node %x typ %v refcnt %d edges %d foreign %d more %v\n", n.address, n.typ != nil && true, n.refcnt, len(n.edges), n.foreign, n.more)
	for _, e := range n.edges {
		if e.from != nil {
			name := "-"
			if e.from.typ != nil {
				name = e.from.typ.name
			}
			fmt.Printf("   at %x value %x from %x+%d %s len %d kind %d\n", e.at, e.value, e.from.address, e.at-e.from.address, name, e.from.block.Len(), e.from.block.kind)
		} else {
			fmt.Printf("   at %x root %+v\n", e.at, *e.root)
		}
	}
}

func init() {
	if os.Getenv("TRYDUMP") != "" {
		debugDump = func(s *search, n *node) {
			for w, i := n, 0; w != nil && i < 6; i++ {
				s.dump(w)
				var next *node
				for _, e := range w.edges {
					if e.from != nil {
						next = e.from
					}
				}
				w = next
			}
		}
	}
}
