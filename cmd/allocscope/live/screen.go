package live

import (
	"errors"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"
)

// framesPerSecond are drawn at most. A trace has news once a second; the others follow keys.
const framesPerSecond = 15

// A Screen has a terminal for itself until it is closed. Its methods may be called from several goroutines, and none but Close waits
// for the terminal.
type Screen struct {
	keys    *os.File
	before  *term.State // of the terminal
	program *tea.Program
	ended   chan struct{} // the program has
	err     error         // why it did, if by itself
	closing sync.Once
	stuck   bool // the program has not ended when it was told to

	mu    sync.Mutex
	state *State   // not yet taken
	lines []string // not yet taken
	more  *sync.Cond
	done  bool
}

// ErrStuck means that the terminal takes nothing any more.
var ErrStuck = errors.New("draw on the terminal: it takes nothing any more")

// patience is how long a terminal may take to show the last frame. One that takes none (a connection that hangs) must not keep the
// trace from writing its files.
const patience = 2 * time.Second

// Open takes the terminal whose keys are read from one file, which Close closes unless the terminal is stuck, and which is drawn to by another.
func Open(keys, to *os.File, actions Actions) (*Screen, error) {
	before, err := term.GetState(int(keys.Fd()))
	if err != nil {
		return nil, err
	}
	s := &Screen{keys: keys, before: before, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	news := make(chan tea.Msg)
	s.program = tea.NewProgram(model{actions: actions, news: news}, tea.WithInput(keys), tea.WithOutput(to), tea.WithoutSignalHandler(),
		tea.WithFPS(framesPerSecond))
	go s.feed(news)
	go func() {
		defer close(s.ended)
		_, s.err = s.program.Run()
	}()
	return s, nil
}

// Show draws a state. One that comes before the last was drawn replaces it.
func (s *Screen) Show(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	s.more.Signal()
}

// Log shows a line in the log.
func (s *Screen) Log(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines[max(0, len(s.lines)-mostLog+1):], line)
	s.more.Signal()
}

// feed hands on what there is to show, as fast as it is taken.
func (s *Screen) feed(news chan<- tea.Msg) {
	for {
		msg := s.next()
		if msg == nil {
			return
		}
		select {
		case news <- msg:
		case <-s.ended:
			return
		}
	}
}

// next waits for something to show; nil: the screen is closed.
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
		s.more.Wait()
	}
}

// Ended is closed when the terminal has been given back, because the screen was closed or has failed.
func (s *Screen) Ended() <-chan struct{} { return s.ended }

// Close gives the terminal back as it was found. The error is why the screen ended before, if it did. It may be called again.
func (s *Screen) Close() error {
	s.closing.Do(func() {
		go s.program.Quit()
		select {
		case <-s.ended:
		case <-time.After(patience):
			s.stuck = true
			go s.program.Kill()
		}
		s.mu.Lock()
		s.done = true
		s.more.Signal()
		s.mu.Unlock()
		_ = term.Restore(int(s.keys.Fd()), s.before) // the program has done so, unless it hangs
		if !s.stuck {                                // else it may still be reading, and must not read what another file's number would be by then
			_ = s.keys.Close()
		}
	})
	if s.stuck {
		return ErrStuck
	}
	return s.err
}
