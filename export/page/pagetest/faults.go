package pagetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// faults are events that a sound page does not have.
type faults struct {
	page string // its address

	mu      sync.Mutex
	list    []string
	waiting map[string]chan<- struct{} // for a word in the console
}

// Faults returns, in order, all console messages, exceptions, dialogs, requests for anything but
// the page, and violations of the page's policy.
func (p *Page) Faults() ([]string, error) {
	if err := p.Settle(); err != nil {
		return nil, err
	}

	word, written := p.faults.await()
	if err := within(p.ctx, "say a word in the console",
		evaluate(fmt.Sprintf("console.debug(%q)", word), nil)); err != nil {
		return nil, err
	}

	select {
	case <-written:
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}

	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	return slices.Clone(p.faults.list), nil
}

// await returns a word for the page to write to its console, and a channel that is closed once it
// has. All earlier messages have arrived then.
func (f *faults) await() (word string, written <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	word = fmt.Sprintf("pagetest: until here %d", len(f.waiting))
	channel := make(chan struct{})

	if f.waiting == nil {
		f.waiting = make(map[string]chan<- struct{})
	}

	f.waiting[word] = channel
	return word, channel
}

// notice records an event of the browser.
func (f *faults) notice(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		f.hear(e)
	case *runtime.EventExceptionThrown:
		f.add("exception: %s", e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		f.add("%s of %s: %s", e.Entry.Level, e.Entry.Source, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; url != f.page && !strings.HasPrefix(url, "data:") {
			f.add("request for %s", cut(url))
		}
	case *page.EventJavascriptDialogOpening:
		f.add("dialog: %s", e.Message)
	}
}

func (f *faults) hear(e *runtime.EventConsoleAPICalled) {
	var words []string
	for _, argument := range e.Args {
		words = append(words, string(bytes.Trim(argument.Value, `"`))+argument.Description)
	}

	text := strings.Join(words, " ")
	f.mu.Lock()
	written := f.waiting[text]
	f.mu.Unlock()

	if written != nil {
		close(written)
		return
	}

	f.add("console.%s: %s", e.Type, text)
}

func (f *faults) add(format string, arguments ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, fmt.Sprintf(format, arguments...))
}
