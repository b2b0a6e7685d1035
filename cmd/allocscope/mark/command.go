package mark

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/fleet/socket"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/process"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var choice target.Choice
	command := &cobra.Command{
		Use:   "mark PID TEXT",
		Short: "Add a mark to the running trace of a process",
		Long: `Mark adds a mark to the trace of a process, or of its nearest ancestor that is traced. The
text appears in the results. A mark that starts with "epoch" means that an epoch just
ended; one that starts with "validation", a validation. With them the warm-up and the
cycle of training are not mistaken for a leak.

The user of the traced process, root, and the user behind sudo may mark. The trace must run in the
same PID namespace, and in the same mount or network namespace: mark a process in a container from
outside.`,
		Example: `  allocscope mark 4242 epoch 3`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, text []string) error {
			// With --pid all arguments are the text, which may begin with a number.
			var first []string
			if !choice.IsGiven() && len(text) > 0 {
				first, text = text[:1], text[1:]
			}

			const usage = "allocscope mark"
			pid, err := choice.Resolve(first, usage, true)
			if err != nil {
				return err
			}
			if len(text) == 0 {
				return exit.Usage(fmt.Errorf("the mark has no text (%s PID TEXT)", usage))
			}
			return send(pid, strings.Join(text, " "))
		},
	}

	choice.AddPID(command, "process that is traced, or a child of it, as the argument PID")
	return command
}

// maxAncestors ends a walk up the ancestors, whose PIDs may be reused meanwhile.
const maxAncestors = 100

// Reasons of a refusal.
var (
	errForeignTrace = errors.New("is neither root nor you (the mark was not sent there)")
	errRefused      = errors.New("the trace refuses the mark")
)

// send sends a mark to the trace of a process, or of the nearest ancestor that has one.
func send(pid int, text string) error {
	if len(text) > record.MaxMarkBytes {
		return fmt.Errorf("mark pid %d: the text of %d bytes is longer than %d", pid, len(text),
			record.MaxMarkBytes)
	}

	var foreign error
	for at, left := pid, maxAncestors; at > 0 && left > 0; left-- {
		err := sendTo(at, text)
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

	return fmt.Errorf("mark pid %d: no trace of it or of an ancestor is running "+
		"(start one: allocscope trace %d)", pid, pid)
}

// parentOf returns the PID of the parent; 0: there is none.
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

// sendTo sends a mark to the trace of exactly that process. The error wraps ECONNREFUSED if there
// is none, and errForeignTrace if the listener belongs to another user.
func sendTo(pid int, text string) error {
	conn, err := dial(pid)
	if err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}
	defer conn.Close()
	uid, err := socket.PeerOf(conn)
	if err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}

	if uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("mark pid %d: user %d, who listens for marks, %w", pid, uid,
			errForeignTrace)
	}

	answer := make([]byte, 4*record.MaxMarkBytes)
	if err := conn.SetDeadline(time.Now().Add(socketTimeout)); err != nil {
		return fmt.Errorf("mark pid %d: %w", pid, err)
	}

	_, written := conn.Write([]byte(text)) // after a refusal the answer counts
	n, err := conn.Read(answer)
	if errors.Is(err, unix.ECONNRESET) { // the answer comes after the reset
		n, err = conn.Read(answer)
	}

	if n == 0 {
		return fmt.Errorf("mark pid %d: %w", pid, errors.Join(written, err))
	}

	if reply := growth.Printable(string(answer[:n])); reply != answerOK {
		return fmt.Errorf("mark pid %d: %w: %s", pid, errRefused, reply)
	}

	return nil
}
