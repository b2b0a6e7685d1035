package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
)

// largeFile is the report of the large trace, on disk.
func largeFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Write(file, largeTrace(t)); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens it, and gives the milliseconds from the navigation to when both charts had been drawn.
func open(t testing.TB, browser *pagetest.Browser, path string) (page *pagetest.Page, milliseconds float64) {
	t.Helper()
	page, err := browser.Open(path, pagetest.View{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	if err := page.Await(`document.querySelector("#timeline-chart canvas") && document.querySelector("#flame-chart svg g")`); err != nil {
		t.Fatal(err)
	}
	if err := page.Evaluate(`new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))`, &milliseconds); err != nil {
		t.Fatal(err)
	}
	return page, milliseconds
}

func startBrowser(t testing.TB) *pagetest.Browser {
	t.Helper()
	browser, err := pagetest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(browser.Close)
	return browser
}

func TestTheReportOfALargeTraceOpensAndAnswers(t *testing.T) {
	t.Parallel()
	page, _ := open(t, startBrowser(t), largeFile(t))
	answer := func(selector string) (text string) {
		for _, act := range []func() error{
			func() error { return page.Still(selector) },
			func() error { return page.Evaluate("document.querySelector('"+selector+"').textContent", &text) },
		} {
			if err := act(); err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	for _, c := range []struct{ over, says string }{
		{"#timeline-chart .u-over", "#timeline-chart .legend"},
		{"#flame-chart svg g", "#flame-chart .details"},
	} {
		before := answer(c.says)
		box, err := page.Box(c.over)
		if err == nil {
			err = page.Move(box.At(0.3, 0.5))
		}
		if err != nil {
			t.Fatal(err)
		}
		if answer(c.says) == before {
			t.Errorf("over %s the page says nothing new: %q", c.over, before)
		}
	}
	if faults, err := page.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%v %q", err, faults)
	}
}

// BenchmarkOpenReport tells how long Chromium takes for the report of a large trace until both charts are drawn.
func BenchmarkOpenReport(b *testing.B) {
	browser, path := startBrowser(b), largeFile(b)
	total := 0.0
	for b.Loop() {
		page, milliseconds := open(b, browser, path)
		page.Close()
		total += milliseconds
	}
	b.ReportMetric(total/float64(b.N), "ms/drawn")
}

func TestTheChartNamesTheRibbonOfWindows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Write(file, leakingTrace(t)); err != nil {
		t.Fatal(err)
	}
	page, _ := open(t, startBrowser(t), path)
	var legend string
	if err := page.Evaluate("document.querySelector('#timeline-chart .legend').textContent", &legend); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"· growth · heap sampled in bursts", "heap sampled in bursts"} {
		if !strings.Contains(legend, want) {
			t.Errorf("the legend does not say %q: %q", want, legend)
		}
	}
	if got := strings.Count(legend, "heap sampled in bursts"); got != 2 { // at the cursor, and beside the ribbon
		t.Errorf("%d times in %q", got, legend)
	}
}
