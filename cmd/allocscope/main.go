// Command allocscope tells why a running process grows: it attaches eBPF probes to its allocator and to the system calls
// that map memory, and writes pprof profiles of what accumulates.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func main() {
	os.Exit(run())
}

func run() int {
	// The first signal ends the trace in order; the second one finds the default handler and ends allocscope.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	defer stop()
	command := newRootCommand()
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		lines := newBacklog(os.Stderr)
		defer lines.flush()
		command.SetErr(lines)
		slog.SetDefault(newLogger(lines, false))
	}
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	slog.Error(err.Error())
	var wanted *finding
	if errors.As(err, &wanted) {
		return 3
	}
	var refusal *ebpf.VerifierError
	if errors.As(err, &refusal) {
		slog.Debug(fmt.Sprintf("%+v", refusal))
	}
	return 1
}

func newRootCommand() *cobra.Command {
	var verbose bool
	root := &cobra.Command{
		Use:           "allocscope",
		Short:         "Tell why a running process grows",
		Long:          "allocscope attaches to a running process, changes nothing in it, and tells what code accumulates memory.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(command *cobra.Command, _ []string) {
			slog.SetDefault(newLogger(command.ErrOrStderr(), verbose))
		},
	}
	slog.SetDefault(newLogger(os.Stderr, false)) // for errors in the flags themselves
	root.PersistentFlags().BoolVar(&verbose, "debug", false, "say what is probed where and why, and print the verifier's log")
	root.AddCommand(
		newTraceCommand(), newMarkCommand(), newReportCommand(), newViewCommand(), newDiffCommand(), newVerdictCommand(), newDoctorCommand(), newVersionCommand(),
	)
	return root
}
