package words

import (
	"cmp"
	"fmt"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// AtDeviceLimit is what happens at the limit of a process whose GPU fills up.
const AtDeviceLimit = "the GPU is full"

// pageCurves are the curves of device memory, by their names in the summary.
var pageCurves = map[string]string{
	export.DeviceUsed:      "as the driver counts",
	export.DeviceReserved:  "reserved by torch",
	export.DeviceAllocated: "allocated by torch",
	export.DeviceDriver:    "through the driver's API",
}

// PageDeviceCurve says what a curve of device memory counts: "as the driver counts". One of a later version is its name.
func PageDeviceCurve(name string) string { return cmp.Or(pageCurves[name], name) }

// pageRows are the kinds of device memory, as rows of a ledger.
var pageRows = map[growth.Kind]string{
	growth.KindCudaBlock:     "torch's blocks",
	growth.KindCudaSegment:   "from the driver",
	growth.KindCudaCached:    "kept by torch's allocator, in no block",
	growth.KindCudaBefore:    "torch's blocks from before the attach",
	growth.KindNotAttributed: "not attributed: context, modules, what is older than the attach",
}

// PageDeviceRow says what a row of the ledger of device memory holds: "torch's blocks: forward (model.py:31), GPU 0". The GPU is named
// where there are several.
func PageDeviceRow(row export.DeviceRow, several bool) string {
	text := cmp.Or(pageRows[row.Kind], string(row.Kind))
	switch {
	case row.Function != "":
		text += ": " + Frame(row.Function)
	case row.Kind == growth.KindCudaBlock || row.Kind == growth.KindCudaSegment:
		text += ", holder not known"
	}
	if several && row.GPU != "" {
		text = fmt.Sprintf("%s, GPU %s", text, row.GPU)
	}
	return text
}
