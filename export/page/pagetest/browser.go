// Package pagetest opens pages from disk in headless Chromium, for tests and for pictures. It uses
// a mouse and a keyboard as a reader would, and records faults.
package pagetest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Guard is the time limit of a call. Only a call that hangs reaches it.
const Guard = 2 * time.Minute

// A Browser is a running Chromium with a profile of its own.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts Chromium, as root without its sandbox, since the pages are ours. The error names
// what to install.
func Start(ctx context.Context) (*Browser, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("start chromium: %w (apt-get install chromium)", err)
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(Guard),
		chromedp.Flag("headless", "new"), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)

	allocator, stop := chromedp.NewExecAllocator(ctx, options...)

	browser, closeIt := chromedp.NewContext(allocator, chromedp.WithErrorf(ignore))
	b := &Browser{browser, []context.CancelFunc{closeIt, stop}}
	if err := chromedp.Run(browser); err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}

	return b, nil
}

// StartFor starts Chromium for a test, and closes it after the test. With -short, as in
// `make quick`, it skips the test.
func StartFor(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a browser, and -short leaves it out")
	}

	browser, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(browser.Close)
	return browser
}

// ignore drops chromedp's messages about events of a newer Chromium.
func ignore(string, ...any) {}

// Close ends Chromium and removes its profile.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// within runs actions on a tab, within the time limit.
func within(tab context.Context, what string, actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(tab, Guard)
	defer cancel()

	err := chromedp.Run(ctx, actions...)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("%s: not done within %s", what, Guard)
	}

	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}

	return nil
}
