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
			seen := map[*node]bool{n: true}
			queue := []*node{n}
			for i := 0; i < len(queue) && i < 400; i++ {
				s.dump(queue[i])
				for _, e := range queue[i].edges {
					if e.from != nil && !seen[e.from] {
						seen[e.from] = true
						queue = append(queue, e.from)
					}
				}
			}
			debugDump = nil
		}
	}
}
