package calibrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/calibrate/child"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// A childProcess is the process that is measured.
type childProcess struct {
	command   *exec.Cmd
	orders    io.WriteCloser
	answers   *os.File
	functions child.Functions // their addresses in the child
}

// startChild starts a child whose answers are read until the timeout. It ends with the calling
// thread, or when its orders are closed.
func startChild(timeout time.Duration) (*childProcess, error) {
	answers, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start child: make pipe: %w", err)
	}
	defer theirs.Close()

	c := &childProcess{answers: answers, command: &exec.Cmd{
		Path: reexec.Executable, Args: []string{child.Name}, Env: child.Environment, Dir: "/", Stdout: theirs,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}}
	if c.orders, err = c.command.StdinPipe(); err != nil {
		return nil, errors.Join(fmt.Errorf("start child: %w", err), answers.Close())
	}

	err = errors.Join(answers.SetReadDeadline(time.Now().Add(timeout)), c.command.Start())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start child: %w", err), c.orders.Close(), answers.Close())
	}
	if err := c.read(&c.functions); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *childProcess) pid() int { return c.command.Process.Pid }

// end kills the child and waits for its end.
func (c *childProcess) end() {
	_ = c.command.Process.Kill() // it may have ended by itself
	_ = c.command.Wait()         // always an error: it was killed
	_ = c.answers.Close()
}

// stopAnswers ends the reads of answers, those under way included.
func (c *childProcess) stopAnswers() { _ = c.answers.SetReadDeadline(time.Unix(1, 0)) }

// ask sends an order and reads the answer to it.
func (c *childProcess) ask(order byte, answer any) error {
	if _, err := c.orders.Write([]byte{order}); err != nil {
		return fmt.Errorf("ask child: %w", err)
	}
	return c.read(answer)
}

func (c *childProcess) read(answer any) error {
	err := binary.Read(c.answers, binary.NativeEndian, answer)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("read child's answer: %w (the machine is busy)", err)
	case err != nil:
		return fmt.Errorf("read child's answer: %w", err)
	}
	return nil
}

func (c *childProcess) maps() ([]process.Mapping, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid()))
	if err != nil {
		return nil, fmt.Errorf("read maps of child: %w", err)
	}
	return process.ParseMaps(raw)
}
