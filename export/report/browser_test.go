package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// reportFile is the report of a trace, on disk.
func reportFile(t testing.TB, trace *Trace) string {
	t.Helper()
	var page bytes.Buffer
	tracertest.NoError(t, Write(&page, trace))
	path := filepath.Join(t.TempDir(), "report.html")
	tracertest.NoError(t, os.WriteFile(path, page.Bytes(), 0o600))
	return path
}

// open opens a report, and waits until both charts have been drawn.
func open(t testing.TB, browser *pagetest.Browser, path string, view pagetest.View) *pagetest.Page {
	t.Helper()
	page := tracertest.Must(browser.Open(path, view))(t)
	t.Cleanup(page.Close)
	const drawn = `document.querySelector("#timeline-chart canvas") && document.querySelector("#flame-chart svg g")`
	tracertest.NoError(t, page.Await(drawn))
	return page
}

func openTrace(t *testing.T, trace *Trace, view pagetest.View) *pagetest.Page {
	t.Helper()
	return open(t, pagetest.StartFor(t), reportFile(t, trace), view)
}

// BenchmarkOpenReport reports how long Chromium takes for the report of a large trace, from the
// navigation until both charts are drawn.
func BenchmarkOpenReport(b *testing.B) {
	browser, path := pagetest.StartFor(b), reportFile(b, largeTrace(b))
	total := 0.0
	for b.Loop() {
		page := open(b, browser, path, pagetest.View{})
		var milliseconds float64
		const now = `new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))`
		tracertest.NoError(b, page.Evaluate(now, &milliseconds))
		page.Close()
		total += milliseconds
	}
	b.ReportMetric(total/float64(b.N), "ms/drawn")
}

// mustBeSound wants no fault of the page, and nothing that is wider than the window.
func mustBeSound(t *testing.T, page *pagetest.Page) {
	t.Helper()
	var beyond int
	err := page.Evaluate("document.documentElement.scrollWidth - innerWidth", &beyond)
	if err != nil || beyond > 0 {
		t.Errorf("the page is %d px wider than the window: %v", beyond, err)
	}
	if faults, err := page.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%v %q", err, faults)
	}
}

func evaluated(t *testing.T, page *pagetest.Page, expression string) (text string) {
	t.Helper()
	tracertest.NoError(t, page.Evaluate(expression, &text))
	return text
}

const legendText = `document.querySelector("#timeline-chart .legend").textContent`

// mustDraw wants a timeline with so many axes: the time, the counts and the sizes. The axis of GPU
// memory is there where the host's would not show it, and the legend says which curve is which.
func mustDraw(t *testing.T, page *pagetest.Page, axes string) {
	t.Helper()
	if got := evaluated(t, page, `document.querySelectorAll("#timeline-chart .u-axis").length + ""`); got != axes {
		t.Errorf("there are %s axes, want %s", got, axes)
	}
	legend := evaluated(t, page, legendText)
	for _, want := range []string{
		"RSS ", "GPU memory (as NVML counts) ", "growth · GPU: growth", "fitted to RSS",
	} {
		if !strings.Contains(legend, want) {
			t.Errorf("the legend does not say %q: %q", want, legend)
		}
	}
	// At the cursor, and beside the ribbon.
	if strings.Count(legend, "heap sampled in bursts") != 2 {
		t.Errorf("the legend says %q", legend)
	}
	mustBeSound(t, page)
	evaluated(t, page,
		`document.querySelectorAll("#timeline-chart .legend input").forEach(box => box.click()), "all others"`)
	mustBeSound(t, page)
}

func TestTimelineInBrowser(t *testing.T) {
	t.Parallel()
	trace := gpuTrace(t)
	for i := range trace.Rows {
		trace.Rows[i].GPUUsed *= 1000
	}
	mustDraw(t, openTrace(t, trace, pagetest.View{}), "4")
}

// axePath is where npm puts the script of axe-core.
const axePath = "../page/web/node_modules/axe-core/axe.min.js"

// mustChooseFlames chooses each memory of the flame graph: it is shown, and no other one.
func mustChooseFlames(t *testing.T, page *pagetest.Page) {
	t.Helper()
	for i, want := range []string{
		"what grew since the baseline",
		"what grew on GPUs since the baseline: 480 MiB, 240 objects",
		"what was reserved on GPUs since the baseline: 500 MiB",
	} {
		tracertest.NoError(t, page.Click(fmt.Sprintf(`input[name="memory"][value="%d"]`, i)))
		got := evaluated(t, page,
			`[...document.querySelectorAll("#flame-chart svg")].filter(svg => svg.clientWidth > 0).map(svg => svg.querySelector("g").getAttribute("aria-label")).join("|")`)
		if !strings.HasPrefix(got, want) || strings.Contains(got, "|") {
			t.Errorf("shows %q, want %q", got, want)
		}
	}
}

func TestReportInBrowser(t *testing.T) {
	t.Run("GPU memory", func(t *testing.T) {
		t.Parallel()
		for _, view := range []pagetest.View{{}, {Dark: true}, {Width: 390, Height: 800}} {
			page := openTrace(t, gpuTrace(t), view)
			axe, err := os.ReadFile(axePath)
			if err != nil {
				t.Fatalf("%v (npm --prefix export/page/web ci gets it)", err)
			}

			violations := tracertest.Must(page.Violations(string(axe)))(t)
			for _, v := range violations {
				t.Errorf("%s: %s", view, v)
			}
			mustChooseFlames(t, page)
			mustDraw(t, page, "3")
		}
	})

	t.Run("large trace", func(t *testing.T) {
		t.Parallel()
		page := openTrace(t, largeTrace(t), pagetest.View{})
		answer := func(selector string) string {
			tracertest.NoError(t, page.Still(selector))
			return evaluated(t, page, "document.querySelector('"+selector+"').textContent")
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
			tracertest.NoError(t, err)
			if answer(c.says) == before {
				t.Errorf("over %s the page says nothing new: %q", c.over, before)
			}
		}
		if faults, err := page.Faults(); err != nil || len(faults) > 0 {
			t.Errorf("%v %q", err, faults)
		}
	})
}
