package screen

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestScreen(t *testing.T) {
	t.Run("terminal is restored", testRestored)
	t.Run("terminal blocks", testBlocked)
}

func TestModel(t *testing.T) {
	t.Run("mark", testMark)
	t.Run("long mark", testLongMark)
	t.Run("quit", testQuit)
	t.Run("extend", testExtend)
	t.Run("scroll", testScroll)
	t.Run("help", testHelp)
	t.Run("log", testLog)
}

// again opens a file once more, since a Screen closes its keys.
func again(t *testing.T, file *os.File) *os.File {
	t.Helper()
	other := tracertest.Must(os.OpenFile(file.Name(), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	return other
}

func settings(t *testing.T, of *os.File) unix.Termios {
	t.Helper()
	now := tracertest.Must(unix.IoctlGetTermios(int(of.Fd()), unix.TCGETS))(t)
	return *now
}

func testRestored(t *testing.T) {
	person, program := tracertest.OpenTerminal(t)
	var mu sync.Mutex
	var seen strings.Builder
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := person.Read(buffer)
			mu.Lock()
			seen.Write(buffer[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()

	shows := func(text string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(seen.String(), text)
		}
	}

	before := settings(t, program)
	pressed := make(chan struct{}, 1)
	screen, err := Open(again(t, program), program, console.ColorAlways,
		Actions{Interrupt: func() { pressed <- struct{}{} }})
	tracertest.NoError(t, err)

	screen.Show(leaking())
	screen.Log("warn: something")
	tracertest.Eventually(t, "the state and the log are shown", func() bool {
		return shows("1.00 GiB")() &&
			shows("something")()
	})

	if now := settings(t, program); now.Lflag&(unix.ICANON|unix.ECHO) != 0 {
		t.Error("the terminal is not raw")
	}
	if _, err := person.WriteString("q"); err != nil {
		t.Fatal(err)
	}

	<-pressed
	for range 2 {
		if err := screen.Close(); err != nil {
			t.Error(err)
		}
	}

	if after := settings(t, program); after != before {
		t.Errorf("the terminal has %+v, had %+v", after, before)
	}

	tracertest.Eventually(t, "the other screen is left and the cursor shown",
		func() bool { return shows("\x1b[?1049l")() && shows("\x1b[?25h")() })
	screen.Show(leaking()) // and nothing happens
	screen.Log("late")
}

// A screen is wanted on a terminal, unless the user or the environment asks for plain lines.
func TestWantsScreen(t *testing.T) {
	_, terminal := tracertest.OpenTerminal(t)
	file := tracertest.Must(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	defer file.Close()

	for name, c := range map[string]struct {
		options trace.Options
		term    string
		out     *os.File
		want    bool
	}{
		"terminal":      {term: "xterm", out: terminal, want: true},
		"--no-tui":      {options: trace.Options{NoTUI: true}, term: "xterm", out: terminal},
		"--json":        {options: trace.Options{JSON: true}, term: "xterm", out: terminal},
		"dumb terminal": {term: "dumb", out: terminal},
		"no TERM":       {out: terminal},
		"file":          {term: "xterm", out: file},
	} {
		t.Setenv("TERM", c.term)
		if got := wantsScreen(&c.options, c.out); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// A connection that hangs must not keep the trace from writing its files.
func testBlocked(t *testing.T) {
	_, program := tracertest.OpenTerminal(t)
	before := settings(t, program)
	const off, on = 0, 1 // TCOOFF, TCOON of tcflow(3)
	tracertest.NoError(t, unix.IoctlSetInt(int(program.Fd()), unix.TCXONC, off))
	defer func() { _ = unix.IoctlSetInt(int(program.Fd()), unix.TCXONC, on) }()
	screen := tracertest.Must(Open(again(t, program), program, console.ColorNever, Actions{}))(t)

	for range 1000 {
		screen.Show(leaking())
		screen.Log("line")
	}

	tracertest.Eventually(t, "the terminal is raw",
		func() bool { return settings(t, program).Lflag&unix.ICANON == 0 })
	if err := screen.Close(); err == nil || !strings.Contains(err.Error(), "block") {
		t.Errorf("%v", err)
	}

	if after := settings(t, program); after != before {
		t.Errorf("the terminal has %+v, had %+v", after, before)
	}
}

// pressed is a model after keys: names as a terminal's key presses, others as text.
func pressed(m model, keys ...string) model {
	special := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape},
		"backspace": {Code: tea.KeyBackspace}, "pgdown": {Code: tea.KeyPgDown},
		"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "end": {Code: tea.KeyEnd},
		"ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}

	for _, name := range keys {
		key, ok := special[name]
		if !ok {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		m = updated(m, tea.KeyPressMsg(key))
	}

	return m
}

// updated is a model after a message.
func updated(m model, message tea.Msg) model {
	next, _ := m.Update(message)
	return next.(model)
}

// spied is a model whose actions are counted.
type spied struct {
	model
	marks      *[]string
	interrupts *int
	extended   *int
}

func watched() spied {
	s := spied{marks: new([]string), interrupts: new(int), extended: new(int)}
	s.actions = Actions{
		Mark:      func(text string, _ time.Time) { *s.marks = append(*s.marks, text) },
		Extend:    func() { *s.extended++ },
		Interrupt: func() { *s.interrupts++ },
	}

	s.model = updated(updated(s.model, tea.WindowSizeMsg{Width: 80, Height: 24}), stateMsg{leaking()})
	return s
}

func testMark(t *testing.T) {
	s := watched()
	m := pressed(s.model, "m", "e", "q", "x", "backspace", " ", "é")
	mustShow(t, m.View().Content, "mark: eq é█", "Enter adds it")
	m = pressed(m, "enter")
	if len(*s.marks) != 1 || (*s.marks)[0] != "eq é" || m.ui.Writing {
		t.Errorf("marks %q", *s.marks)
	}

	pressed(m, "m", "enter", "m", "x", "esc", "x")
	if len(*s.marks) != 1 || *s.interrupts != 0 {
		t.Errorf("without a text, or after Esc: marks %q, %d interrupts", *s.marks, *s.interrupts)
	}
}

func testLongMark(t *testing.T) {
	s := watched()
	m := pressed(s.model, "m")
	pressed(updated(m, tea.PasteMsg{Content: strings.Repeat("é", 5000)}), "enter")
	if len(*s.marks) != 1 || len((*s.marks)[0]) != maxDraftBytes {
		t.Errorf("marks %q", *s.marks)
	}
}

// e makes a trace with an end longer, each time that it is pressed.
func testExtend(t *testing.T) {
	s := watched()
	pressed(s.model, "e")
	if *s.extended != 0 {
		t.Error("a trace without an end was extended")
	}
	if strings.Contains(s.View().Content, "more") {
		t.Error("the key is shown")
	}

	state := leaking()
	state.Extension = 5 * time.Minute
	m := updated(s.model, stateMsg{state})
	mustShow(t, m.View().Content, "e 5m more", "of 5m")
	pressed(m, "e", "e", "q", "e")
	if *s.extended != 2 {
		t.Errorf("extended %d times, want 2: not while it ends", *s.extended)
	}
}

func testQuit(t *testing.T) {
	s := watched()
	m := pressed(s.model, "q", "q")
	if *s.interrupts != 1 {
		t.Errorf("%d interrupts after q twice", *s.interrupts)
	}

	mustShow(t, m.View().Content, "ending the trace")
	if pressed(m, "ctrl+c", "m", "ctrl+c"); *s.interrupts != 3 {
		t.Errorf("%d interrupts", *s.interrupts)
	}
}

func testScroll(t *testing.T) {
	m := pressed(watched().model, "down")
	mustShow(t, m.View().Content, "2 to 6 of 9")
	m = pressed(m, "end", "end", "pgdown")
	mustShow(t, m.View().Content, "5 to 9 of 9")
	m = pressed(m, "up")
	mustShow(t, m.View().Content, "4 to 8 of 9")
	m = pressed(m, "s")
	mustShow(t, m.View().Content, "1 to 5 of 9", "Stacks by bytes", "sort: bytes")
}

func testHelp(t *testing.T) {
	m := pressed(watched().model, "?")
	mustShow(t, m.View().Content, "PgUp", "provisional", "--no-tui")
	for _, line := range words.ScreenHelp(true) {
		if ansi.StringWidth(line) > 80 {
			t.Errorf("cut on the usual terminal: %q", line)
		}
	}

	mustShow(t, pressed(m, "?").View().Content, "Stacks by rate")
	mustShow(t, pressed(m, "esc").View().Content, "Stacks by rate")
}

func testLog(t *testing.T) {
	m := watched().model
	for i := range 3 * maxLogLines {
		m = updated(m, logMsg("line "+strings.Repeat("i", i)))
	}

	if len(m.ui.Log) != maxLogLines {
		t.Errorf("%d lines", len(m.ui.Log))
	}

	mustShow(t, m.View().Content, "line "+strings.Repeat("i", 3*maxLogLines-1))
}
