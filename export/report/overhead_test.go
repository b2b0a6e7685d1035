package report

import (
	"reflect"
	"testing"

	"github.com/allocscope/allocscope/export"
)

func changes(list ...export.OverheadChange) *export.Overhead {
	return &export.Overhead{Mode: list[len(list)-1].Mode, Changes: list}
}

func TestTheRibbonShowsWhenHeapWasNotProbedAllTheTime(t *testing.T) {
	band := func(from, to float64, kind, label string) phaseBand { return phaseBand{stretch{from, to}, kind, label} }
	for name, test := range map[string]struct {
		overhead *export.Overhead
		want     []phaseBand
	}{
		"nothing is known":           {nil, []phaseBand{}},
		"all the time":               {&export.Overhead{Mode: export.HeapFull}, []phaseBand{}},
		"windows from the beginning": {&export.Overhead{Mode: export.HeapWindows}, []phaseBand{band(0, 300, "windows", "heap in windows")}},
		"a storm": {
			changes(export.OverheadChange{AtS: 60, Mode: export.HeapWindows}, export.OverheadChange{AtS: 70, Mode: export.HeapWindows}, export.OverheadChange{AtS: 80, Mode: export.HeapOff}, export.OverheadChange{AtS: 90, Mode: export.HeapFull}),
			[]phaseBand{band(60, 80, "windows", "heap in windows"), band(80, 90, "off", "heap not watched")},
		},
		"until the end": {changes(export.OverheadChange{AtS: 250, Mode: export.HeapOff}), []phaseBand{band(250, 300, "off", "heap not watched")}},
		"forged":        {changes(export.OverheadChange{AtS: 90, Mode: export.HeapOff}, export.OverheadChange{AtS: 10, Mode: "<mode>"}), []phaseBand{}},
	} {
		s := leakingSummary()
		s.Overhead = test.overhead
		if got := probingOf(&s); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		s.Sources = []export.Source{{Name: "heap", State: export.SourceOff}}
		if got := probingOf(&s); len(got) != 0 {
			t.Errorf("%s, where nobody asked for heap: %+v", name, got)
		}
	}
}

func TestChangesOfTheProbesStandBesideTheMarks(t *testing.T) {
	s := leakingSummary()
	d := timelineOf(&s, rows(300))
	if want := []markLine{{20, "heap in windows"}, {90, "sampling interval 128 KiB"}}; !reflect.DeepEqual(d.Changes, want) {
		t.Errorf("%+v, want %+v", d.Changes, want)
	}
	if want := []markLine{{61.5, "epoch 1"}}; !reflect.DeepEqual(d.Marks, want) {
		t.Errorf("marks %+v, want %+v", d.Marks, want)
	}
}
