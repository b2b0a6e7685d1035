package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

const (
	outputFile  = "output" // of an attached tool
	traceFolder = "trace"
	programFile = "allocscope"
	oldFile     = "allocscope-old"
	memrayFile  = "memray.bin"
	libcLink    = "libc.so.6"
)

// An attachment is a tool that is attached to a program for a fixed time.
type attachment struct {
	command *exec.Cmd
	done    chan error
}

// attach starts a tool in a folder and waits until it has printed ready.
func attach(ctx context.Context, argv []string, ready, folder string) (*attachment, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	t := &attachment{command: command, done: make(chan error, 1)}
	harness.OwnGroup(t.command)
	t.command.Dir = folder

	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.command.Stdout, t.command.Stderr = writer, writer
	if err := t.command.Start(); err != nil {
		return nil, err
	}
	writer.Close()

	attached := make(chan struct{})
	go func() {
		err := keep(reader, filepath.Join(folder, outputFile), ready, attached)
		if waited := t.command.Wait(); err == nil {
			err = waited
		}
		t.done <- err
	}()

	select {
	case <-attached:
		return t, nil
	case err := <-t.done:
		return nil, fmt.Errorf("it ended at once: %w: %s",
			err, lastLine(filepath.Join(folder, outputFile)))
	}
}

// keep writes the output of a tool to a file until it ends. It closes attached at the first line
// that contains ready.
func keep(from io.ReadCloser, path, ready string, attached chan struct{}) error {
	defer from.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()

	for lines, waiting := bufio.NewScanner(from), true; lines.Scan(); {
		fmt.Fprintln(file, lines.Text())
		if waiting && strings.Contains(lines.Text(), ready) {
			waiting = false
			close(attached)
		}
	}
	return nil
}

// end waits until the tool has written its report and has exited.
func (t *attachment) end() error {
	killer := time.AfterFunc(exitTimeout, func() { _ = t.command.Cancel() })
	defer killer.Stop()
	return <-t.done
}

func lastLine(path string) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
