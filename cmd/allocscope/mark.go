package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/process"
)

func newMarkCommand() *cobra.Command {
	var pid int
	command := &cobra.Command{
		Use:   "mark --pid N TEXT",
		Short: "Tell the running trace of a process what happens now",
		Long: `Mark tells the trace of a process, or of the nearest ancestor that is traced, what happens at this moment. The text appears
in the results. One that begins with "epoch" says that a pass over the data has ended; one that begins with "validation",
that a validation has been: both keep the warm-up and the cycle of training from being taken for a leak.

The user of the traced process, root, and the user behind sudo may mark. The trace must run in the same network and PID
namespace: mark a process in a container from outside.`,
		Example: `  allocscope mark --pid 4242 epoch 3`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, words []string) error {
			return sendMark(pid, strings.Join(words, " "))
		},
	}
	command.Flags().IntVarP(&pid, "pid", "p", 0, "process that is traced, or a child of it")
	if err := command.MarkFlagRequired("pid"); err != nil {
		panic(err) // the flag is defined above
	}
	return command
}

// mostAncestors ends a walk up the ancestors, whose PIDs may be used again meanwhile.
const mostAncestors = 100

// Reasons for which a mark is not taken.
var (
	errForeignTrace = errors.New("is neither root nor you (the mark was not sent there)")
	errRefused      = errors.New("the trace refuses the mark")
)

// sendMark sends a mark to the trace of a process or of the nearest ancestor that has one.
func sendMark(pid int, text string) error {
	if len(text) > maxMark {
		return fmt.Errorf("mark pid %d: the text of %d bytes is longer than %d", pid, len(text), maxMark)
	}
	var foreign error
	for at, left := pid, mostAncestors; at > 0 && left > 0; left-- {
		err := sendMarkTo(at, text)
		switch {
		case errors.Is(err, errForeignTrace):
			foreign = err
		case !errors.Is(err, unix.ECONNREFUSED):
			return err
		}
		if at, err = parentOf(at); err != nil {
			return fmt.Errorf("mark pid %d: find its ancestors: %w", pid, err)
		}
	}
	if foreign != nil {
		return foreign
	}
	return fmt.Errorf("mark pid %d: no trace of it or of an ancestor is running (start one: allocscope trace --pid %d)", pid, pid)
}

// parentOf is the PID of the parent; 0: there is none.
func parentOf(pid int) (int, error) {
	field, err := statusField(pid, "PPid")
	if errors.Is(err, os.ErrNotExist) {
		return 0, process.ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(field)
}

// sendMarkTo sends a mark to the trace of that very process. The error wraps ECONNREFUSED if there is none, and
// errForeignTrace if somebody else pretends to be one.
func sendMarkTo(pid int, text string) error {
	conn, err := net.DialUnix("unixpacket", nil, markAddress(pid))
	if err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}
	defer conn.Close()
	uid, err := peerOf(conn)
	if err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}
	if uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("mark pid %d: user %d, who listens for marks, %w", pid, uid, errForeignTrace)
	}
	answer := make([]byte, 4*maxMark)
	if err := conn.SetDeadline(time.Now().Add(markTimeout)); err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}
	_, written := conn.Write([]byte(text)) // it may have been refused already: then the answer counts
	n, err := conn.Read(answer)
	if errors.Is(err, unix.ECONNRESET) { // the answer to what it has not read comes behind that
		n, err = conn.Read(answer)
	}
	if n == 0 {
		return fmt.Errorf("mark pid %d: %w", pid, errors.Join(written, err))
	}
	if said := process.Printable(string(answer[:n])); said != markTaken {
		return fmt.Errorf("mark pid %d: %w: %s", pid, errRefused, said)
	}
	return nil
}
