package ranks

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestPage opens pages in Chromium, which reports their violations, and counts the elements shown.
func TestPage(t *testing.T) {
	browser := pagetest.StartFor(t)
	const many = 300
	rates := make([]float64, many)
	for i := range rates {
		rates[i] = 10 + math.Sin(float64(i))
	}
	rates[277] = 60

	axe, err := os.ReadFile("../page/web/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v (npm --prefix export/page/web ci gets it)", err)
	}
	for name, test := range map[string]struct {
		result    *Result
		ranks     int
		out       string
		hasTables bool
	}{
		"recorded": {recorded(t, nil), 8, "rank 3", true},
		"many":     {Find("", ranksOf(rates...), 0.05), many, "rank 277", false},
		"none":     {Find("", nil, 0.05), 0, "", false},
	} {
		var page bytes.Buffer
		tracertest.NoError(t, test.result.WriteHTML(&page))
		path := filepath.Join(t.TempDir(), "ranks.html")
		tracertest.NoError(t, os.WriteFile(path, page.Bytes(), 0o600))
		opened := tracertest.Must(browser.Open(path, pagetest.View{}))(t)

		var shown struct {
			Dots, Rows, Out, Tables int
			Mark                    string
			Low, High               float64
			IsWide                  bool
		}
		if err := opened.Evaluate(`(() => {
			const all = s => [...document.querySelectorAll(s)]
			const y = s => all(s).map(c => c.getBoundingClientRect().y)
			return {
				dots: all(".dots circle").length, rows: all("#ranks tbody tr").length,
				out: all(".dots .out circle").length, tables: all("#components, #stacks").length,
				mark: all(".dots .mark").map(e => e.textContent).join(),
				low: Math.min(...y(".dots g:not(.out) circle"), 1e9), high: Math.min(...y(".dots .out circle"), 1e9),
				isWide: document.documentElement.scrollWidth > innerWidth,
			}
		})()`, &shown); err != nil {
			t.Fatal(err)
		}
		if shown.Dots != test.ranks || shown.Rows != test.ranks || shown.Mark != test.out ||
			shown.Tables > 0 != test.hasTables || shown.IsWide {
			t.Errorf("%s: %+v", name, shown)
		}
		if test.out != "" && (shown.Out != 1 || shown.High >= shown.Low) {
			t.Errorf("%s: the rank that stands out is not the highest dot: %+v", name, shown)
		}
		if faults, err := opened.Faults(); err != nil || len(faults) > 0 {
			t.Errorf("%s: %v %s", name, err, fmt.Sprint(faults))
		}
		violations := tracertest.Must(opened.Violations(string(axe)))(t)
		for _, v := range violations {
			t.Errorf("%s: %s", name, v)
		}
		opened.Close()
	}
}
