package live

import (
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// Actions are what keys do. They are called in the screen's own goroutine and may not wait for the screen.
type Actions struct {
	// Mark sets a mark at a moment, which is when its key was pressed.
	Mark func(text string, at time.Time)
	// Interrupt is Ctrl-C.
	Interrupt func()
}

const (
	mostDraft = 200 // bytes of a mark
	page      = 5   // stacks
	mostLog   = 20  // lines that are kept to be shown
)

// model is what is on the screen. It implements tea.Model.
type model struct {
	actions Actions
	state   *State // nil: nothing has come yet
	look    Look
	markAt  time.Time
	news    <-chan tea.Msg
}

// Messages from the trace.
type (
	stateMsg struct{ state *State }
	logMsg   string
)

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return m.await }

// await waits for what the trace says next.
func (m model) await() tea.Msg { return <-m.news }

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.look.Width, m.look.Height = msg.Width, msg.Height
	case stateMsg:
		m.state = msg.state
		return m, m.await
	case logMsg:
		m.look.Log = append(m.look.Log[max(0, len(m.look.Log)-mostLog+1):len(m.look.Log):len(m.look.Log)], string(msg))
		return m, m.await
	case tea.PasteMsg:
		if m.look.Writing {
			m.write(msg.Content)
		}
	case tea.KeyPressMsg:
		m.press(msg)
	}
	return m, nil
}

// View implements tea.Model.
func (m model) View() tea.View {
	view := tea.View{AltScreen: true}
	if m.state != nil && m.look.Width > 0 && m.look.Height > 0 {
		view.Content = Render(m.state, m.look)
	}
	return view
}

func (m *model) press(key tea.KeyPressMsg) {
	switch name := key.String(); {
	case name == "ctrl+c":
		m.leave()
	case m.look.Writing:
		m.edit(key)
	case name == "q":
		if !m.look.Leaving {
			m.leave()
		}
	case name == "m":
		m.look.Writing, m.look.Draft, m.look.Help, m.markAt = true, "", false, time.Now()
	case name == "s":
		m.look.Order, m.look.Scroll = m.look.Order.next(), 0
	case name == "g":
		if m.state != nil && m.state.Device != nil {
			m.look.Device, m.look.Scroll = !m.look.Device, 0
		}
	case name == "?":
		m.look.Help = !m.look.Help
	case name == "esc":
		m.look.Help = false
	default:
		m.scroll(name)
	}
}

func (m *model) leave() {
	m.look.Leaving = true
	m.actions.Interrupt()
}

// edit is a key while a mark is typed.
func (m *model) edit(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		if m.look.Draft != "" {
			m.actions.Mark(m.look.Draft, m.markAt)
		}
		m.look.Writing = false
	case "esc":
		m.look.Writing = false
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.look.Draft)
		m.look.Draft = m.look.Draft[:len(m.look.Draft)-size]
	case "ctrl+u":
		m.look.Draft = ""
	default:
		m.write(key.Text)
	}
}

// write adds to the draft what there is room for.
func (m *model) write(text string) {
	for _, r := range text {
		if len(m.look.Draft)+utf8.RuneLen(r) > mostDraft {
			return
		}
		m.look.Draft += string(r)
	}
}

// scroll moves through the stacks, of which the last ones stay in view.
func (m *model) scroll(name string) {
	by, ok := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page, "home": -1 << 30, "end": 1 << 30,
	}[name]
	if !ok || m.state == nil {
		return
	}
	m.look.Scroll = max(0, min(m.look.Scroll+by, lastScroll(m.state, m.look)))
}
