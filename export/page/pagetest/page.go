package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// A View is how a reader views a page.
type View struct {
	// Width and Height of the window, in CSS pixels; 0: 1280 by 900.
	Width, Height int64
	// Dark is the reader's colour scheme.
	Dark bool
	// Print shows the page as it is printed.
	Print bool
	// NoScript turns scripts off.
	NoScript bool
}

func (v View) String() string {
	text := fmt.Sprintf("%d px", v.size().Width)
	for word, is := range map[string]bool{
		", dark": v.Dark, ", printed": v.Print, ", without scripts": v.NoScript,
	} {
		if is {
			text += word
		}
	}

	return text
}

func (v View) size() View {
	if v.Width == 0 {
		v.Width = 1280
	}
	if v.Height == 0 {
		v.Height = 900
	}
	return v
}

func (v View) actions() []chromedp.Action {
	v = v.size()
	scheme, media := "light", ""
	if v.Dark {
		scheme = "dark"
	}

	if v.Print {
		media = "print"
	}

	return []chromedp.Action{
		emulation.SetDeviceMetricsOverride(v.Width, v.Height, 1, v.Width < 640),
		emulation.SetEmulatedMedia().WithMedia(media).WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		}),
		emulation.SetScriptExecutionDisabled(v.NoScript),
		emulation.SetFocusEmulationEnabled(true),
	}
}

// A Page is a page in a window of its own. Its methods are for one goroutine.
type Page struct {
	ctx    context.Context
	cancel context.CancelFunc
	faults *faults
	still  bool // no script runs in it, so that nothing changes by itself
}

// watch runs before the scripts of the page, and reports violations of its policy.
const watch = `addEventListener("securitypolicyviolation", e =>
	console.error("policy violated: " + e.violatedDirective + " by " + e.blockedURI + " " + e.sample))`

// Open opens a file, or the address of a server ("http://127.0.0.1:80/"), and waits until it has
// loaded and its scripts have run.
func (b *Browser) Open(address string, view View) (*Page, error) {
	if !strings.HasPrefix(address, "http://") {
		path, err := filepath.Abs(address)
		if err != nil {
			return nil, err
		}
		address = "file://" + path
	}

	window, err := b.window()
	if err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}

	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(window))
	p := &Page{ctx, cancel, &faults{page: address}, view.NoScript}
	// The context of the first call is the window's, so it has no time limit.
	if err := chromedp.Run(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("open a window: %w", err)
	}

	chromedp.ListenTarget(ctx, p.faults.notice)

	actions := append(view.actions(), runtime.Enable(), log.Enable(), network.Enable(),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(watch).Do(ctx)
			return err
		}), chromedp.Navigate(p.faults.page))

	if err := within(ctx, "open "+address, actions...); err != nil {
		p.Close()
		return nil, err
	}

	return p, nil
}

// window opens a window. Chromium does not draw pages behind others in the same window.
func (b *Browser) window() (target.ID, error) {
	browser := chromedp.FromContext(b.ctx).Browser
	return target.CreateTarget("about:blank").WithNewWindow(true).Do(cdp.WithExecutor(b.ctx,
		browser))
}

// Close closes the window.
func (p *Page) Close() { p.cancel() }

// View changes the view of the open page, and waits until the page has been drawn. NoScript has no
// effect on scripts that have run.
func (p *Page) View(view View) error {
	if err := within(p.ctx, "change the view", view.actions()...); err != nil {
		return err
	}
	return p.Settle()
}

// Evaluate sets value to the value of an expression, or of its promise. nil discards it.
func (p *Page) Evaluate(expression string, value any) error {
	return within(p.ctx, "evaluate "+cut(expression), evaluate(expression, value))
}

func evaluate(expression string, value any) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		result, exception, err := runtime.Evaluate(expression).WithReturnByValue(true).WithAwaitPromise(true).Do(ctx)
		switch {
		case err != nil:
			return err
		case exception != nil:
			return exception
		case value == nil:
			return nil
		case len(result.Value) == 0:
			return fmt.Errorf("the value is %s", result.Type)
		}

		return json.Unmarshal(result.Value, value)
	})
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) error {
	return within(p.ctx, "wait until "+cut(expression), evaluate(fmt.Sprintf(
		`new Promise((done, fail) => { const poll = () => { try { (%s) ? done() : setTimeout(poll, 10) } catch (e) { fail(e) } }; poll() })`,
		expression),
		nil))
}

// Settle waits until everything that has happened so far has been drawn.
func (p *Page) Settle() error {
	if p.still {
		return nil
	}
	const drawn = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))`
	return within(p.ctx, "wait for the next frames", evaluate(drawn, nil))
}

// Still waits until an element has not changed for some frames.
func (p *Page) Still(selector string) error {
	return within(p.ctx, "wait until "+selector+" is still",
		evaluate(fmt.Sprintf(`new Promise(done => {
		let before = "", same = 0
		const poll = () => {
			const now = document.querySelector(%q).outerHTML
			same = now == before ? same + 1 : 0
			before = now
			same < 12 ? requestAnimationFrame(poll) : done(true)
		}
		poll()
	})`, selector), nil))
}

// cut truncates the quotes of an error.
func cut(text string) string {
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}
