package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
)

// openDevice opens the report of a trace with device memory.
func openDevice(t *testing.T, trace *Trace, view pagetest.View) *pagetest.Page {
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
	if err := page.Await(`document.querySelector("#timeline-chart canvas") && document.querySelector("#flame-chart svg g")`); err != nil {
		t.Fatal(err)
	}
	return page
}

// mustBeSound wants no fault of the page, and nothing that is wider than the window.
func mustBeSound(t *testing.T, page *pagetest.Page) {
	t.Helper()
	var beyond int
	if err := page.Evaluate("document.documentElement.scrollWidth - innerWidth", &beyond); err != nil || beyond > 0 {
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

func TestTheFlameGraphShowsTheMemoryThatIsChosen(t *testing.T) {
	t.Parallel()
	for _, view := range []pagetest.View{{}, {Width: 390, Height: 800, Dark: true}} {
		page := openDevice(t, deviceTrace(t), view)
		for i, want := range []string{"what grew since the baseline", "what grew on GPUs since the baseline: 480 MiB, 240 objects", "what was reserved on GPUs since the baseline: 500 MiB"} {
			if err := page.Click([]string{`input[name="memory"][value="0"]`, `input[name="memory"][value="1"]`, `input[name="memory"][value="2"]`}[i]); err != nil {
				t.Fatal(err)
			}
			got := evaluated(t, page, `[...document.querySelectorAll("#flame-chart svg")].filter(svg => svg.clientWidth > 0).map(svg => svg.querySelector("g").getAttribute("aria-label")).join("|")`)
			if !strings.HasPrefix(got, want) || strings.Contains(got, "|") {
				t.Errorf("%s: shows %q, want %q", view, got, want)
			}
		}
		mustBeSound(t, page)
	}
}

func TestTheFlameGraphThatComesBackIsAsWideAsItsPlace(t *testing.T) {
	t.Parallel()
	page := openDevice(t, deviceTrace(t), pagetest.View{})
	for _, act := range []func() error{
		func() error { return page.Click(`input[name="memory"][value="1"]`) },
		func() error { return page.View(pagetest.View{Width: 700}) },
		func() error { return page.Click(`input[name="memory"][value="0"]`) },
	} {
		if err := act(); err != nil {
			t.Fatal(err)
		}
	}
	if got := evaluated(t, page, `(() => {
		const [svg] = [...document.querySelectorAll("#flame-chart svg")].filter(svg => svg.clientWidth > 0)
		return svg.getAttribute("width") == document.querySelector("#flame-chart").clientWidth ? "as wide" : svg.outerHTML.slice(0, 100)
	})()`); got != "as wide" {
		t.Error(got)
	}
}

func TestWithoutDeviceMemoryThereIsNothingToChoose(t *testing.T) {
	t.Parallel()
	page := openDevice(t, leakingTrace(t), pagetest.View{})
	if got := evaluated(t, page, `String(document.querySelectorAll('[name="memory"], #gpu').length) + document.querySelector("#timeline-chart .legend").textContent`); !strings.HasPrefix(got, "0") || strings.Contains(got, "gpu") {
		t.Error(got)
	}
}

// The axis of device memory is there where the host's would not show it, and the legend says which curve is which.
func TestHostAndDeviceMemoryAreToldApartInTheChart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		factor int64
		axes   string
	}{"one axis": {1, "3"}, "two axes": {1000, "4"}} {
		trace := deviceTrace(t)
		for i := range trace.Rows {
			trace.Rows[i].DeviceUsed *= c.factor
		}
		page := openDevice(t, trace, pagetest.View{})
		if got := evaluated(t, page, `document.querySelectorAll("#timeline-chart .u-axis").length + ""`); got != c.axes {
			t.Errorf("%s: there are %s axes, that of the time and that of the counts among them", name, got)
		}
		legend := evaluated(t, page, `document.querySelector("#timeline-chart .legend").textContent`)
		for _, want := range []string{"RSS ", "GPU memory (as the driver counts) ", "growth · GPU: growth", "fitted to RSS"} {
			if !strings.Contains(legend, want) {
				t.Errorf("%s: the legend does not say %q: %q", name, want, legend)
			}
		}
		mustBeSound(t, page)
		evaluated(t, page, `document.querySelectorAll("#timeline-chart .legend input").forEach(box => box.click()), "all others"`)
		mustBeSound(t, page)
	}
}

// axePath is where npm puts the script of axe-core.
const axePath = "../page/web/node_modules/axe-core/axe.min.js"

func TestTheReportOfADeviceIsForReadersOfAllKinds(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(axePath)
	if err != nil {
		t.Fatalf("%v (npm --prefix export/page/web ci gets it)", err)
	}
	for _, view := range []pagetest.View{{}, {Dark: true}, {Width: 390, Height: 800}} {
		page := openDevice(t, withoutNVML(t), view)
		violations, err := page.Violations(string(axe))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range violations {
			t.Errorf("%s: %s", view, v)
		}
		mustBeSound(t, page)
	}
}
