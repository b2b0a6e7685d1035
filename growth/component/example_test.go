package component_test

import (
	"fmt"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
)

// A rule of the user comes before the built-in ones.
func ExampleParseRules() {
	const packages = "/usr/lib/python3/dist-packages/"
	resize := &growth.Stack{Frames: []growth.Frame{
		{Function: "malloc", Module: &growth.Module{Path: "/usr/lib/x86_64-linux-gnu/libc.so.6"}},
		{Function: "ImagingNew", Module: &growth.Module{Path: packages + "PIL/_imaging.so"}},
		{Function: "Image.resize", Python: true, File: packages + "PIL/Image.py", Line: 2192},
		{Function: "Thumbnails.add", Python: true, File: "/srv/train/thumbnails.py", Line: 31},
	}}
	fmt.Println(component.DefaultRules().Of(resize))

	rules, err := component.ParseRules("mine.rules", []byte(`thumbnails any file /thumbnails\.py$`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules.Of(resize))
	// Output:
	// pil
	// thumbnails
}
