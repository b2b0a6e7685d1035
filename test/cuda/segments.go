package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/growth"
)

// A segment has the fields of torch.cuda.memory._snapshot() that both sides know.
type segment struct {
	Device     int       `json:"device"`
	Address    uint64    `json:"address"`
	Size       int64     `json:"total_size"`
	Allocated  int64     `json:"allocated_size"`
	Active     int64     `json:"active_size"`
	Stream     uint64    `json:"stream"`
	Type       string    `json:"segment_type"`
	Pool       [2]uint64 `json:"segment_pool_id"`
	Expandable bool      `json:"is_expandable"`
	Blocks     []block   `json:"blocks"`
}

type block struct {
	Address   uint64 `json:"address"`
	Size      int64  `json:"size"`
	Requested int64  `json:"requested_size"`
	State     string `json:"state"`
}

const (
	allocated = "active_allocated"
	pending   = "active_pending_free"
	inactive  = "inactive"
)

// toJSON prints a pickle as JSON.
const toJSON = "import json, pickle, sys; " +
	"json.dump(pickle.load(open(sys.argv[1], 'rb'))['segments'], sys.stdout)"

// pickled reads the segments of a file in the form of torch.cuda.memory._snapshot().
func pickled(path string) (segments []segment, err error) {
	command := exec.Command("/usr/bin/python3", "-c", toJSON, path)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &segments)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return sorted(segments), nil
}

// segmentsOf are the segments that were read from outside.
func segmentsOf(c *growth.GPUCache) (segments []segment, err error) {
	for i := range c.Segments {
		from := &c.Segments[i]
		s := segment{
			Address: from.Address, Size: from.Size, Stream: from.Stream, Type: "large", Pool: from.Pool.ID,
			Expandable: from.Expandable,
		}
		if from.Small {
			s.Type = "small"
		}
		if s.Device, err = strconv.Atoi(from.GPU); err != nil {
			return nil, err
		}
		for _, b := range from.Blocks {
			s.add(b)
		}
		segments = append(segments, s)
	}
	return sorted(segments), nil
}

func (s *segment) add(b growth.GPUBlock) {
	out := block{Address: b.Address, Size: b.Size, Requested: b.Requested, State: inactive}
	switch b.State {
	case growth.GPUBlockAllocated:
		out.State = allocated
		s.Allocated += b.Size
		s.Active += b.Size
	case growth.GPUBlockPending:
		out.State = pending
		s.Active += b.Size
	}
	s.Blocks = append(s.Blocks, out)
}

// sorted sorts segments by address. It clears the requested size of blocks that are not allocated:
// PyTorch leaves the size of an earlier request there.
func sorted(segments []segment) []segment {
	for i := range segments {
		for j := range segments[i].Blocks {
			if b := &segments[i].Blocks[j]; b.State != allocated {
				b.Requested = 0
			}
		}
	}

	slices.SortFunc(segments, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Address, b.Address))
	})
	return segments
}

// maxDifferences are reported of a list.
const maxDifferences = 3

// differences compares two lists of segments, block by block.
func differences(what string, got, want []segment) (faults []string) {
	if len(got) != len(want) {
		faults = append(faults, fmt.Sprintf("%s has %d segments, torch %d", what, len(got), len(want)))
	}

	for i := range min(len(got), len(want)) {
		if len(faults) >= maxDifferences {
			break
		}
		if reflect.DeepEqual(got[i], want[i]) {
			continue
		}
		at := 0
		for at < min(len(got[i].Blocks), len(want[i].Blocks)) && got[i].Blocks[at] == want[i].Blocks[at] {
			at++
		}
		faults = append(faults, fmt.Sprintf("%s: segment %d is %s, in torch %s", what, i,
			described(got[i], at), described(want[i], at)))
	}
	return faults
}

// described is a segment without its blocks but one.
func described(s segment, at int) string {
	blocks := s.Blocks
	s.Blocks = nil
	text := fmt.Sprintf("%+v of %d blocks", s, len(blocks))
	if at < len(blocks) {
		text += fmt.Sprintf(", block %d %+v", at, blocks[at])
	}
	return text
}
