package screen

import (
	"errors"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/term"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
)

// framesPerSecond are drawn at most. A trace shows a state once a second; the other frames follow
// keys.
const framesPerSecond = 15

// Screen has a terminal for itself until it is closed. Its methods may be called from several
// goroutines. Only Close waits for the terminal.
type Screen struct {
	keys    *os.File
	before  *term.State // of the terminal
	program *tea.Program
	ended   chan struct{} // closed when the program has ended
	err     error         // why the program ended by itself
	closing sync.Once
	stuck   bool // the program did not end when it was asked to

	mu      sync.Mutex
	state   *State   // to be shown
	lines   []string // of the log, to be shown
	changed *sync.Cond
	done    bool
}

// ErrStuck means that writes to the terminal block.
var ErrStuck = errors.New("draw on the terminal: writes to it block")

// closeTimeout is how long a terminal may take to show the last frame. A terminal that blocks (a
// connection that hangs) must not keep the trace from writing its files.
const closeTimeout = 2 * time.Second

// Open takes a terminal, whose keys are read from one file, and which is drawn on through another.
// Close closes the file of the keys, unless the terminal is stuck.
func Open(keys, to *os.File, color console.Color, actions Actions) (*Screen, error) {
	before, err := term.GetState(int(keys.Fd()))
	if err != nil {
		return nil, err
	}

	s := &Screen{keys: keys, before: before, ended: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	messages := make(chan tea.Msg)
	options := []tea.ProgramOption{
		tea.WithInput(keys), tea.WithOutput(to), tea.WithoutSignalHandler(),
		tea.WithFPS(framesPerSecond),
	}
	if profile := profileOf(color, to); profile != colorprofile.Unknown {
		options = append(options, tea.WithColorProfile(profile))
	}
	s.program = tea.NewProgram(model{actions: actions, messages: messages}, options...)

	go s.feed(messages)
	go func() {
		defer close(s.ended)
		_, s.err = s.program.Run()
	}()
	return s, nil
}

// profileOf returns the colours that a terminal is to show; colorprofile.Unknown: those that it can.
func profileOf(color console.Color, to *os.File) colorprofile.Profile {
	switch {
	case !color.Enabled(to):
		return colorprofile.ASCII // bold stays
	case color == console.ColorAlways:
		return max(colorprofile.ANSI256, colorprofile.Detect(to, os.Environ()))
	}
	return colorprofile.Unknown
}

// Show draws a state. It replaces a state that was not drawn yet.
func (s *Screen) Show(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	s.changed.Signal()
}

// Log shows a line in the log.
func (s *Screen) Log(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines[max(0, len(s.lines)-maxLogLines+1):], line)
	s.changed.Signal()
}

// feed sends the states to be shown, as fast as the program receives it.
func (s *Screen) feed(messages chan<- tea.Msg) {
	for {
		msg := s.next()
		if msg == nil {
			return
		}

		select {
		case messages <- msg:
		case <-s.ended:
			return
		}
	}
}

// next waits for something to show. It returns nil when the screen is closed.
func (s *Screen) next() tea.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.done:
			return nil
		case s.state != nil:
			msg := stateMsg{s.state}
			s.state = nil
			return msg
		case len(s.lines) > 0:
			msg := logMsg(s.lines[0])
			s.lines = s.lines[1:]
			return msg
		}
		s.changed.Wait()
	}
}

// Ended is closed when the terminal has been restored, because the screen was closed or has failed.
func (s *Screen) Ended() <-chan struct{} { return s.ended }

// Close restores the terminal. The error is why the screen ended before, if it did. It may be
// called again.
func (s *Screen) Close() error {
	s.closing.Do(func() {
		go s.program.Quit()
		select {
		case <-s.ended:
		case <-time.After(closeTimeout):
			s.stuck = true
			go s.program.Kill()
		}

		s.mu.Lock()
		s.done = true
		s.changed.Signal()
		s.mu.Unlock()

		_ = term.Restore(int(s.keys.Fd()), s.before) // the program has done so, unless it hangs

		// A stuck program may still read the descriptor, which must not be reused.
		if !s.stuck {
			_ = s.keys.Close()
		}
	})

	if s.stuck {
		return ErrStuck
	}

	return s.err
}

// Actions are called by keys, in the goroutine of the screen. They may not wait for the screen.
type Actions struct {
	// Mark adds a mark at the moment when its key was pressed.
	Mark func(text string, at time.Time)
	// Extend makes a trace with an end go on longer.
	Extend func()
	// Interrupt is Ctrl-C.
	Interrupt func()
}

const (
	maxDraftBytes = 200 // of a mark
	scrollPage    = 5   // stacks
	maxLogLines   = 20
)

// model is the content of the screen. It implements tea.Model.
type model struct {
	actions  Actions
	state    *State // nil: none was shown yet
	ui       UIState
	markAt   time.Time
	messages <-chan tea.Msg
}

// Messages from the trace.
type (
	stateMsg struct{ state *State }
	logMsg   string
)

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return m.await }

// await waits for the next message from the trace.
func (m model) await() tea.Msg { return <-m.messages }

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.ui.Width, m.ui.Height = msg.Width, msg.Height
	case stateMsg:
		m.state = msg.state
		return m, m.await
	case logMsg:
		n := len(m.ui.Log)
		m.ui.Log = append(m.ui.Log[max(0, n-maxLogLines+1):n:n], string(msg))
		return m, m.await
	case tea.PasteMsg:
		if m.ui.Writing {
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
	if m.state != nil && m.ui.Width > 0 && m.ui.Height > 0 {
		view.Content = Render(m.state, m.ui)
	}
	return view
}

func (m *model) press(key tea.KeyPressMsg) {
	switch name := key.String(); {
	case name == "ctrl+c":
		m.leave()
	case m.ui.Writing:
		m.edit(key)
	case name == "q":
		if !m.ui.Leaving {
			m.leave()
		}
	case name == "m":
		m.ui.Writing, m.ui.Draft, m.ui.Help, m.markAt = true, "", false, time.Now()
	case name == "e":
		if m.state != nil && m.state.Extension > 0 && !m.ui.Leaving {
			m.actions.Extend()
		}
	case name == "s":
		m.ui.Order, m.ui.Scroll = m.ui.Order.next(), 0
	case name == "g":
		if m.state != nil && m.state.GPU != nil {
			m.ui.ShowGPU, m.ui.Scroll = !m.ui.ShowGPU, 0
		}
	case name == "?":
		m.ui.Help = !m.ui.Help
	case name == "esc":
		m.ui.Help = false
	default:
		m.scroll(name)
	}
}

func (m *model) leave() {
	m.ui.Leaving = true
	m.actions.Interrupt()
}

// edit handles a key while a mark is typed.
func (m *model) edit(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		if m.ui.Draft != "" {
			m.actions.Mark(m.ui.Draft, m.markAt)
		}
		m.ui.Writing = false
	case "esc":
		m.ui.Writing = false
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.ui.Draft)
		m.ui.Draft = m.ui.Draft[:len(m.ui.Draft)-size]
	case "ctrl+u":
		m.ui.Draft = ""
	default:
		m.write(key.Text)
	}
}

// write adds to the draft as much of a text as fits.
func (m *model) write(text string) {
	for _, r := range text {
		if len(m.ui.Draft)+utf8.RuneLen(r) > maxDraftBytes {
			return
		}
		m.ui.Draft += string(r)
	}
}

// scroll moves through the stacks. The last ones stay in view.
func (m *model) scroll(name string) {
	by, ok := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -scrollPage, "pgdown": scrollPage,
		"home": -1 << 30, "end": 1 << 30,
	}[name]
	if !ok || m.state == nil {
		return
	}
	m.ui.Scroll = max(0, min(m.ui.Scroll+by, lastScroll(m.state, m.ui)))
}
