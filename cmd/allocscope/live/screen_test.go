package live

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openPTY opens a pseudo-terminal: what a person has, and what a program has.
func openPTY(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Fatal(err)
	}
	return person, openEnd(t, number)
}

func openEnd(t *testing.T, number int) *os.File {
	t.Helper()
	end, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	return end
}

// again opens a file once more, since a Screen closes its keys.
func again(t *testing.T, file *os.File) *os.File {
	t.Helper()
	other, err := os.OpenFile(file.Name(), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func settings(t *testing.T, of *os.File) unix.Termios {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(of.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *now
}

func eventually(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !isTrue(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestAScreenGivesTheTerminalBackAsItFoundIt(t *testing.T) {
	person, program := openPTY(t)
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
	screen, err := Open(again(t, program), program, Actions{Interrupt: func() { pressed <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	screen.Show(leaking())
	screen.Log("warn: something")
	eventually(t, "the state and the log are shown", func() bool { return shows("1.00 GiB")() && shows("something")() })
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
	eventually(t, "the other screen is left and the cursor shown", func() bool { return shows("\x1b[?1049l")() && shows("\x1b[?25h")() })
	screen.Show(leaking()) // and nothing happens
	screen.Log("late")
}

// A connection that hangs must not keep the trace from writing its files.
func TestATerminalThatTakesNothingHoldsNobodyUp(t *testing.T) {
	_, program := openPTY(t)
	before := settings(t, program)
	const off, on = 0, 1 // TCOOFF, TCOON of tcflow(3)
	if err := unix.IoctlSetInt(int(program.Fd()), unix.TCXONC, off); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.IoctlSetInt(int(program.Fd()), unix.TCXONC, on) }()
	screen, err := Open(again(t, program), program, Actions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		screen.Show(leaking())
		screen.Log("line")
	}
	eventually(t, "the terminal is raw", func() bool { return settings(t, program).Lflag&unix.ICANON == 0 })
	if err := screen.Close(); err == nil || !strings.Contains(err.Error(), "takes nothing") {
		t.Errorf("%v", err)
	}
	if after := settings(t, program); after != before {
		t.Errorf("the terminal has %+v, had %+v", after, before)
	}
}
