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
func open(t testing.TB, browser *pagetest.Browser,
	path string,
) (page *pagetest.Page, milliseconds float64) {
	t.Helper()
	page, err := browser.Open(path, pagetest.View{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	if err := page.Await(`document.querySelector("#timeline-chart canvas") && document.querySelector("#flame-chart svg g")`); err !=
		nil {
		t.Fatal(err)
	}
	if err := page.Evaluate(`new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))`,
		&milliseconds); err != nil {
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

// BenchmarkOpenReport reports how long Chromium takes for the report of a large trace until both charts are drawn.
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

// openGPU opens the report of a trace with GPU memory.
func openGPU(t *testing.T, trace *Trace, view pagetest.View) *pagetest.Page {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Write(file, trace); err != nil {
		t.Fatal(err)
	}
	page, err := startBrowser(t).Open(path, view)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	if err := page.Await(`document.querySelector("#timeline-chart canvas") && document.querySelector("#flame-chart svg g")`); err !=
		nil {
		t.Fatal(err)
	}
	return page
}

// mustBeSound wants no fault of the page, and nothing that is wider than the window.
func mustBeSound(t *testing.T, page *pagetest.Page) {
	t.Helper()
	var beyond int
	if err := page.Evaluate("document.documentElement.scrollWidth - innerWidth", &beyond); err !=
		nil ||
		beyond > 0 {
		t.Errorf("the page is %d px wider than the window: %v", beyond, err)
	}
	if faults, err := page.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%v %q", err, faults)
	}
}

func evaluated(t *testing.T, page *pagetest.Page, expression string) (text string) {
	t.Helper()
	if err := page.Evaluate(expression, &text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFlameGraphInBrowser(t *testing.T) {
	t.Run("chosen memory", func(t *testing.T) {
		t.Parallel()
		for _, view := range []pagetest.View{{}, {Width: 390, Height: 800, Dark: true}} {
			page := openGPU(t, gpuTrace(t), view)
			for i, want := range []string{
				"what grew since the baseline",
				"what grew on GPUs since the baseline: 480 MiB, 240 objects",
				"what was reserved on GPUs since the baseline: 500 MiB",
			} {
				if err := page.Click([]string{
					`input[name="memory"][value="0"]`, `input[name="memory"][value="1"]`,
					`input[name="memory"][value="2"]`,
				}[i]); err != nil {
					t.Fatal(err)
				}
				got := evaluated(t, page,
					`[...document.querySelectorAll("#flame-chart svg")].filter(svg => svg.clientWidth > 0).map(svg => svg.querySelector("g").getAttribute("aria-label")).join("|")`)
				if !strings.HasPrefix(got, want) || strings.Contains(got, "|") {
					t.Errorf("%s: shows %q, want %q", view, got, want)
				}
			}
			mustBeSound(t, page)
		}
	})
}

func TestTimelineInBrowser(t *testing.T) {
	// The axis of GPU memory is there where the host's would not show it, and the legend says which curve is which.
	t.Run("host and GPU memory", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			factor int64
			axes   string
		}{"one axis": {1, "3"}, "two axes": {1000, "4"}} {
			trace := gpuTrace(t)
			for i := range trace.Rows {
				trace.Rows[i].GPUUsed *= c.factor
			}
			page := openGPU(t, trace, pagetest.View{})
			if got := evaluated(t, page,
				`document.querySelectorAll("#timeline-chart .u-axis").length + ""`); got != c.axes {
				t.Errorf("%s: there are %s axes, that of the time and that of the counts among them",
					name, got)
			}
			legend := evaluated(t, page,
				`document.querySelector("#timeline-chart .legend").textContent`)
			for _, want := range []string{
				"RSS ", "GPU memory (as the driver counts) ", "growth · GPU: growth",
				"fitted to RSS",
			} {
				if !strings.Contains(legend, want) {
					t.Errorf("%s: the legend does not say %q: %q", name, want, legend)
				}
			}
			mustBeSound(t, page)
			evaluated(t, page,
				`document.querySelectorAll("#timeline-chart .legend input").forEach(box => box.click()), "all others"`)
			mustBeSound(t, page)
		}
	})

	t.Run("ribbon of bursts", func(t *testing.T) {
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
		if err := page.Evaluate("document.querySelector('#timeline-chart .legend').textContent",
			&legend); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"· growth · heap sampled in bursts", "heap sampled in bursts",
		} {
			if !strings.Contains(legend, want) {
				t.Errorf("the legend does not say %q: %q", want, legend)
			}
		}
		if got := strings.Count(legend,
			"heap sampled in bursts"); got != 2 { // at the cursor, and beside the ribbon
			t.Errorf("%d times in %q", got, legend)
		}
	})
}

// axePath is where npm puts the script of axe-core.
const axePath = "../page/web/node_modules/axe-core/axe.min.js"

func TestReportInBrowser(t *testing.T) {
	t.Run("GPU memory", func(t *testing.T) {
		t.Parallel()
		axe, err := os.ReadFile(axePath)
		if err != nil {
			t.Fatalf("%v (npm --prefix export/page/web ci gets it)", err)
		}
		for _, view := range []pagetest.View{{}, {Dark: true}, {Width: 390, Height: 800}} {
			page := openGPU(t, withoutNVML(t), view)
			violations, err := page.Violations(string(axe))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range violations {
				t.Errorf("%s: %s", view, v)
			}
			mustBeSound(t, page)
		}
	})

	t.Run("large trace", func(t *testing.T) {
		t.Parallel()
		page, _ := open(t, startBrowser(t), largeFile(t))
		answer := func(selector string) (text string) {
			for _, act := range []func() error{
				func() error { return page.Still(selector) },
				func() error {
					return page.Evaluate("document.querySelector('"+selector+"').textContent",
						&text)
				},
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
	})
}
