package profile_test

import (
	"bytes"
	"fmt"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"
)

// The profile of one holding, written and read again.
func ExampleWrite() {
	stack := &growth.Stack{ID: 1, PID: 42, Frames: []growth.Frame{
		{Function: "augment", Python: true, File: "/srv/train.py", Line: 47},
		{Function: "<module>", Python: true, File: "/srv/train.py", Line: 90},
	}}
	holding := growth.Holding{
		Stack: stack, Kind: growth.KindHeap,
		InuseObjects: 100, InuseBytes: 100 << 20, ResidentBytes: 80 << 20,
	}

	var file bytes.Buffer
	info := profile.Info{Processes: map[int]string{42: "python3 train.py"}}
	if err := profile.Write(&file, []growth.Holding{holding}, info); err != nil {
		fmt.Println(err)
		return
	}

	read, err := profile.Read(&file)
	if err != nil {
		fmt.Println(err)
		return
	}
	sample := read.Sample[0]
	for i, kind := range read.SampleType {
		fmt.Println(kind.Type, sample.Value[i])
	}
	fmt.Println(sample.Location[0].Line[0].Function.Name, sample.Label["component"])
	// Output:
	// alloc_objects 0
	// alloc_space 0
	// inuse_objects 100
	// inuse_space 104857600
	// resident_space 83886080
	// augment [train.py]
}
