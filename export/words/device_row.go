package words

import (
	"cmp"
	"fmt"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// DeviceRow says what a row of the ledger of device memory holds: "torch's blocks: forward (model.py:31), GPU 0". The GPU is named
// where there are several.
func DeviceRow(row export.DeviceRow, several bool) string {
	text := cmp.Or(deviceKindTexts[row.Kind], string(row.Kind))
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
