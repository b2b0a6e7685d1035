package calibrate

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// attach probes the child's functions, all at once. The return is probed of calloc alone.
func (t Tracing) attach(c *childProcess) ([]link.Link, error) {
	malloc := probe.Function{Name: "malloc", Form: bpf.KernelCallFormCALL_MALLOC, Throws: true}
	free := probe.Function{Name: "free", Form: bpf.KernelCallFormCALL_FREE}
	calloc := probe.Function{Name: "calloc", Form: bpf.KernelCallFormCALL_CALLOC}
	target := probe.Target{File: process.Mapping{Path: self}, Path: self, Sites: []probe.Site{
		{Function: malloc, Offset: c.functions.Malloc, Emulated: true},
		{Function: free, Offset: c.functions.Free, Emulated: true},
		{Function: calloc, Offset: c.functions.Calloc, Emulated: true},
		{Function: malloc, Offset: c.functions.Stepped},
	}}
	maps, err := c.maps()
	if err != nil {
		return nil, err
	}
	for i := range target.Sites {
		if target.Sites[i].Offset, err = offset(maps, target.Sites[i].Offset); err != nil {
			return nil, err
		}
	}
	return probe.Attach(t.Mode, target, t.Programs, c.pid())
}

// offset gives the place in the executable's file of what lies at an address of the child.
func offset(maps []process.Mapping, address uint64) (uint64, error) {
	for _, m := range maps {
		if m.Execute && m.IsFile() && address >= m.Start && address < m.End {
			return address - m.Start + m.Offset, nil
		}
	}
	return 0, fmt.Errorf("find the child's function at %#x: %w", address, os.ErrNotExist)
}
