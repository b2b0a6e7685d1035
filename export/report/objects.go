package report

import (
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// maxKeptChars bounds a line about who keeps the memory of a suspect.
const maxKeptChars = 200

// An objectsView is the Python objects of the process, its tensors, and who keeps what.
type objectsView struct {
	Title   string
	Notes   []string
	Types   []typeView
	Largest []typeView
	Tensors []tensorView
	Keepers []keeperView
}

type typeView struct {
	Type, Rate, Interval, Before, After, Bytes string
	RateValue                                  float64
	BeforeValue, AfterValue, BytesValue        int64
}

type tensorView struct {
	words.TensorRow
	Where, BytesText string
}

// A keeperView is the subject of a search, and its findings.
type keeperView struct {
	Title string
	Lines []string
}

// objectsOf is the part about objects; nil: neither they nor any keeper are known.
func objectsOf(s *summary.Summary) *objectsView {
	if s.Objects == nil && len(s.Keepers) == 0 {
		return nil
	}

	v := &objectsView{}
	for _, k := range s.Keepers {
		v.Keepers = append(v.Keepers, keeperView{words.KeeperTitle(s, k), words.KeeperLines(k)})
	}
	o := s.Objects
	if o == nil {
		return v
	}

	v.Title, v.Notes = "Types that grow, Python "+o.Python, words.ObjectsNotes(o)
	for _, t := range o.Types {
		v.Types = append(v.Types, typeView{
			Type: t.Type, Rate: units.PerMinute(t.PerMin), Interval: words.TypeInterval(o, t),
			Before: units.Thousands(t.Before), After: units.Thousands(t.After),
			Bytes: units.Signed(float64(t.Bytes)), RateValue: t.PerMin, BeforeValue: t.Before,
			AfterValue: t.After, BytesValue: t.Bytes,
		})
	}
	for _, t := range o.Largest {
		v.Largest = append(v.Largest, typeView{
			Type: t.Type, After: words.TypeCount(t), Bytes: units.Bytes(float64(t.Bytes)),
		})
	}
	for _, row := range words.TensorRows(o) {
		v.Tensors = append(v.Tensors, tensorView{
			TensorRow: row, Where: words.WhereStack(s, row.StackID),
			BytesText: units.Bytes(float64(row.Bytes)),
		})
	}
	return v
}
