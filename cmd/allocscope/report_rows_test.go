package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
)

func checkRows(t *testing.T, report readable) {
	rows := readSummary(t, report.folder).Accumulating
	for _, width := range []int64{1280, 400} {
		r := report.open(t, pagetest.View{Width: width})
		for i, row := range rows {
			at := fmt.Sprintf("table.rows tbody tr:nth-child(%d)", i+1)
			if got := eval[string](r, "document.querySelector(%q).innerText", at+" ol.stack"); got != "" {
				t.Errorf("the stack of row %d is open: %q", i, got)
			}
			if i%2 == 0 {
				r.must(r.Click(at + " summary"))
			} else {
				r.must(r.Evaluate(fmt.Sprintf("document.querySelector(%q).focus()", at+" summary"), nil))
				r.must(r.Press([]string{"\r", " "}[i/2%2]))
			}
			visible := eval[[]string](r, "[...document.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.textContent)", at+" ol.stack li")
			if !slices.Equal(visible, row.Stack) {
				t.Errorf("row %d shows %q, want %q", i, visible, row.Stack)
			}
		}
		r.must(r.Evaluate("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()", nil))
		r.tabTo("table.rows summary")
		r.mustBeSound()
	}
}

func checkSorting(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	columns := r.texts("table.rows thead th")
	bytes := slices.Index(columns, "Bytes")
	button := fmt.Sprintf("table.rows th:nth-child(%d) button", bytes+1)
	var want []int64
	for _, row := range readSummary(t, report.folder).Accumulating {
		want = append(want, row.Bytes)
	}
	slices.Sort(want)
	sorted := func() (values []int64) {
		for _, text := range eval[[]string](r, "[...document.querySelectorAll(%q)].map(e => e.dataset.value)", fmt.Sprintf("table.rows tbody td:nth-child(%d)", bytes+1)) {
			value, err := strconv.ParseInt(text, 10, 64)
			r.must(err)
			values = append(values, value)
		}
		return values
	}
	order := func() string { return eval[string](r, "document.querySelector(%q).closest('th').ariaSort", button) }
	for _, direction := range []string{"descending", "ascending"} {
		slices.Reverse(want)
		r.must(r.Click(button))
		if got := sorted(); !slices.Equal(got, want) || order() != direction {
			t.Errorf("sorted by bytes, %s, the rows have %v, want %s %v", order(), got, direction, want)
		}
	}
	r.must(r.Click("table.rows thead th:first-child button"))
	owners := r.texts("table.rows tbody td:first-child")
	if !slices.IsSorted(owners) {
		t.Errorf("sorted by owner: %v", owners)
	}
	r.mustBeSound()
}
