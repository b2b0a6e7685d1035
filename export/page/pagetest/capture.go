package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Picture is a PNG of the page from the top of the first selected element to the bottom of the
// second, over the whole width.
func (p *Page) Picture(from, to string) (png []byte, err error) {
	var clip page.Viewport
	if err := p.Evaluate(fmt.Sprintf(`(() => {
		const [from, to] = [%q, %q].map(s => document.querySelector(s).getBoundingClientRect())
		return {x: 0, y: from.top + scrollY, width: innerWidth, height: to.bottom - from.top, scale: 1}
	})()`, from, to), &clip); err != nil {
		return nil, err
	}

	return png,
		within(p.ctx, "take a picture", chromedp.ActionFunc(func(ctx context.Context) (err error) {
			png, err = page.CaptureScreenshot().WithClip(&clip).WithCaptureBeyondViewport(true).Do(ctx)
			return err
		}))
}

// Paper is a PDF of the printed page.
func (p *Page) Paper() (pdf []byte, err error) {
	return pdf, within(p.ctx, "print", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		pdf, _, err = page.PrintToPDF().WithPrintBackground(true).Do(ctx)
		return err
	}))
}

// A Violation is a rule of accessibility that a page breaks.
type Violation struct {
	Rule   string `json:"id"`
	Impact string `json:"impact"` // "minor", "moderate", "serious" or "critical"
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

func (v Violation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s: %s, in %d places", v.Impact, v.Rule, v.Help, len(v.Nodes))
	for _, node := range v.Nodes[:min(3, len(v.Nodes))] {
		fmt.Fprintf(&text, "\n  %s\n  %s", cut(node.HTML),
			strings.ReplaceAll(node.Summary, "\n", "\n  "))
	}
	return text.String()
}

// Violations returns the findings of axe-core, whose script is given, of serious and critical
// impact.
func (p *Page) Violations(axe string) ([]Violation, error) {
	var found json.RawMessage
	const run = `axe.run(document, {resultTypes: ["violations"]}).then(r =>
		r.violations.filter(v => v.impact == "serious" || v.impact == "critical"))`

	err := within(p.ctx, "run axe-core", evaluate(axe+"\n;0", nil), evaluate(run, &found))
	if err != nil {
		return nil, err
	}

	var violations []Violation
	return violations, json.Unmarshal(found, &violations)
}
