package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// asks are all questions about pages.
var asks = map[string]func(g *Pages, start, end uint64) (int, error){
	"Runs": func(g *Pages, start, end uint64) (int, error) { r, err := g.Runs(nil, start, end); return len(r), err },
	"AnonymousRuns": func(g *Pages, start, end uint64) (int, error) {
		r, err := g.AnonymousRuns(nil, start, end)
		return len(r), err
	},
	"Shared": func(g *Pages, start, end uint64) (int, error) {
		r, err := g.Shared(nil, start, end)
		return len(r), err
	},
}

// ask asks everything, by both ways.
func ask(pages *Pages, start, end uint64, answer func(question string, n int, err error)) {
	for way, scan := range ways {
		for name, question := range asks {
			pages.scan = scan
			n, err := question(pages, start, end)
			answer(name+" "+way, n, err)
		}
	}
}

func TestAnEmptyRangeHoldsNothing(t *testing.T) {
	memory := mapPages(t, 2)
	memory[0], memory[pageBytes] = 1, 1
	start := addressOf(memory)
	for _, c := range [][2]uint64{{start, start}, {start + uint64(pageBytes), start}, {^uint64(0), 0}, {1 << 63, 1 << 62}} {
		ask(pagesOf(t, openSelf(t)), c[0], c[1], func(question string, n int, err error) {
			if n != 0 || err != nil {
				t.Errorf("%s of %#x to %#x: %d, %v", question, c[0], c[1], n, err)
			}
		})
	}
	pages := pagesOf(t, openSelf(t))
	for way, scan := range ways {
		if found := runs(t, pages, scan, start+9, start+9); len(found) != 0 {
			t.Errorf("%s: %+v", way, found)
		}
	}
}

func TestRunsAreAddedToThoseThatAreThere(t *testing.T) {
	memory := mapPages(t, 3)
	memory[pageBytes] = 1
	start := addressOf(memory)
	before := PageRun{Start: 1, End: start + uint64(pageBytes)} // alike, and ends where the next begins
	found, err := pagesOf(t, openSelf(t)).Runs([]PageRun{before}, start, start+uint64(len(memory)))
	if err != nil || len(found) != 2 || found[0] != before || found[1].Start != before.End {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestRangesBeyondTheAddressSpaceAreAnErrorOfEveryQuestion(t *testing.T) {
	pages := pagesOf(t, openSelf(t))
	for _, c := range [][2]uint64{{1 << 63, 1<<63 + 4096}, {^uint64(0) - 1<<20, ^uint64(0)}, {1 << 56, 1<<56 + 1}} {
		ask(pages, c[0], c[1], func(question string, n int, err error) {
			if n != 0 || err == nil || errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s of %#x to %#x: %d, %v", question, c[0], c[1], n, err)
			}
		})
	}
}

func TestReservationsOfTerabytesCostNothingByScanningAndAreRefusedByReading(t *testing.T) {
	const size = 4 << 40
	memory, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.MunmapPtr(memory, size)
	start := uint64(uintptr(memory))
	pages := pagesOf(t, openSelf(t))
	ask(pages, start, start+size, func(question string, n int, err error) {
		if pages.scan && (n != 0 || err != nil) || !pages.scan && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d, %v", question, n, err)
		}
	})
	if n, err := asks["Runs"](pages, start, start+MaxRead/16); n != 0 || err != nil {
		t.Errorf("%d runs, %v", n, err)
	}
}

func TestMoreRunsThanTheyMayBeAreAnError(t *testing.T) {
	var to []PageRun
	each := collect(&to, 0, 1<<40)
	for i := range uint64(maxRuns) {
		if err := each(PageRun{Start: i << 12, End: i<<12 + 4096}); err != nil {
			t.Fatal(err)
		}
	}
	if err := each(PageRun{Start: 1 << 39, End: 1<<39 + 4096}); !errors.Is(err, ErrTooManyRuns) || len(to) != maxRuns {
		t.Errorf("%v, %d runs", err, len(to))
	}
}

// mustBeGone asks for the pages of a program that is no more.
func mustBeGone(t *testing.T, pages *Pages) {
	t.Helper()
	ask(pages, 0x10000, 1<<30, func(question string, n int, err error) {
		if n != 0 || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %d, %v", question, n, err)
		}
	})
}

func TestThePagesOfAProgramThatIsNoMoreAreAnErrorOfEveryQuestion(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("sh", "-c", "echo ready; read line; exec cat"))
	target.Await("ready")
	p := open(t, target.PID())
	pages := pagesOf(t, p)
	target.Say("now another program")
	target.Say("runs")
	target.Await("runs")
	mustBeGone(t, pages)
	other := pagesOf(t, p)
	target.Hangup()
	mustBeGone(t, other)
	if late, err := p.Pages(); err == nil {
		mustBeGone(t, late)
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
