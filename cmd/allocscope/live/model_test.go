package live

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// pressed is a model after keys: names as a terminal's key presses, others as text.
func pressed(m model, keys ...string) model {
	special := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "backspace": {Code: tea.KeyBackspace}, "pgdown": {Code: tea.KeyPgDown},
		"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "end": {Code: tea.KeyEnd}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	for _, name := range keys {
		key, ok := special[name]
		if !ok {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		next, _ := m.Update(tea.KeyPressMsg(key))
		m = next.(model)
	}
	return m
}

// spied is a model whose actions are counted.
type spied struct {
	model
	marks      *[]string
	interrupts *int
}

func watched() spied {
	s := spied{marks: new([]string), interrupts: new(int)}
	s.actions = Actions{
		Mark:      func(text string, _ time.Time) { *s.marks = append(*s.marks, text) },
		Interrupt: func() { *s.interrupts++ },
	}
	next, _ := s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	next, _ = next.Update(stateMsg{leaking()})
	s.model = next.(model)
	return s
}

func TestAMarkIsTypedAndSet(t *testing.T) {
	s := watched()
	m := pressed(s.model, "m", "e", "q", "x", "backspace", " ", "é")
	mustShow(t, m.View().Content, "mark: eq é█", "Enter sets it")
	m = pressed(m, "enter")
	if len(*s.marks) != 1 || (*s.marks)[0] != "eq é" || m.look.Writing {
		t.Errorf("marks %q", *s.marks)
	}
	pressed(m, "m", "enter", "m", "x", "esc", "x")
	if len(*s.marks) != 1 || *s.interrupts != 0 {
		t.Errorf("without a text, or after Esc: marks %q, %d interrupts", *s.marks, *s.interrupts)
	}
}

func TestADraftIsNoLongerThanAMark(t *testing.T) {
	s := watched()
	m := pressed(s.model, "m")
	next, _ := m.Update(tea.PasteMsg{Content: strings.Repeat("é", 5000)})
	pressed(next.(model), "enter")
	if len(*s.marks) != 1 || len((*s.marks)[0]) != mostDraft {
		t.Errorf("marks %q", *s.marks)
	}
}

func TestQuittingInterruptsOnceAndCtrlCEachTime(t *testing.T) {
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

func TestTheLayoutFollowsTheTerminal(t *testing.T) {
	m := watched().model
	for _, look := range sizes {
		next, _ := m.Update(tea.WindowSizeMsg{Width: look.Width, Height: look.Height})
		m = next.(model)
		mustFit(t, m.View().Content, look)
		if lines := strings.Count(m.View().Content, "\n") + 1; lines != look.Height {
			t.Errorf("%d lines on %d", lines, look.Height)
		}
	}
}

func TestStacksScrollAsFarAsThereAreSome(t *testing.T) {
	m := pressed(watched().model, "down")
	mustShow(t, m.View().Content, "2 to 6 of 9")
	m = pressed(m, "end", "end", "pgdown")
	mustShow(t, m.View().Content, "5 to 9 of 9")
	m = pressed(m, "up")
	mustShow(t, m.View().Content, "4 to 8 of 9")
	m = pressed(m, "s")
	mustShow(t, m.View().Content, "1 to 5 of 9", "Stacks by bytes", "sort: bytes")
}

func TestHelpTellsTheKeysAndGoesAway(t *testing.T) {
	m := pressed(watched().model, "?")
	mustShow(t, m.View().Content, "PgUp", "provisional", "--no-tui")
	for _, line := range helpLines {
		if ansi.StringWidth(line) > 80 {
			t.Errorf("cut on the usual terminal: %q", line)
		}
	}
	mustShow(t, pressed(m, "?").View().Content, "Stacks by rate")
	mustShow(t, pressed(m, "esc").View().Content, "Stacks by rate")
}

func TestTheLogKeepsTheLatestLines(t *testing.T) {
	m := watched().model
	for i := range 3 * mostLog {
		next, _ := m.Update(logMsg("line " + strings.Repeat("i", i)))
		m = next.(model)
	}
	if len(m.look.Log) != mostLog {
		t.Errorf("%d lines", len(m.look.Log))
	}
	mustShow(t, m.View().Content, "line "+strings.Repeat("i", 3*mostLog-1))
}
