// Command allocscope finds what grows in a running process. It attaches eBPF probes to the
// allocator and to the system calls that map memory, and writes pprof profiles of what accumulates.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/mark"
	"github.com/allocscope/allocscope/cmd/allocscope/screen"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
)

func main() {
	os.Exit(run())
}

func run() int {
	// The first signal ends the trace in order. The second one finds the default handler and ends
	// allocscope.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	defer stop()

	stderr := console.New(os.Stderr)
	defer stderr.Flush()

	err := newRootCommand(stderr).ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	slog.Error(err.Error())

	var failOn *flagvalue.FailOnError
	if errors.As(err, &failOn) {
		return 3
	}

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		slog.Debug(fmt.Sprintf("%+v", verifier))
	}

	return 1
}

func newRootCommand(stderr *console.Console) *cobra.Command {
	var verbose bool
	root := &cobra.Command{
		Use:   "allocscope",
		Short: "Find memory leaks in a running process",
		Long: `allocscope attaches to a running process without restarting it, and reports whether its
memory leaks, how fast, and which code accumulates it.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			slog.SetDefault(stderr.Logger(verbose))
		},
	}

	slog.SetDefault(stderr.Logger(false)) // for errors in the flags themselves

	root.PersistentFlags().BoolVar(&verbose, "debug", false,
		"log which functions are probed and why, and the verifier's log")
	root.SetErr(stderr)
	root.AddCommand(newTraceCommand(stderr), mark.NewCommand(), newShowCommand(), newReportCommand(),
		newViewCommand(), newDiffCommand(), newVerdictCommand(), newDoctorCommand(),
		newVersionCommand())
	return root
}

// newTraceCommand returns the trace command with its screen on the terminal.
func newTraceCommand(stderr *console.Console) *cobra.Command {
	return trace.NewCommand(func(command *cobra.Command) trace.Environment {
		return traceEnvironment(command.Context(), stderr, command.OutOrStdout())
	})
}

// traceEnvironment is what a trace gets from the command: where it writes, and who shows it.
func traceEnvironment(
	ctx context.Context,
	stderr *console.Console,
	out io.Writer,
) trace.Environment {
	return trace.Environment{
		Version:     versionText(),
		Out:         out,
		WriteReport: writeReport,
		NewDisplay: func(r *trace.Recorder) trace.Display {
			return screen.NewDisplay(ctx, r, stderr, out)
		},
	}
}

// version is set by the Makefile from git. It is empty after `go install`, where the module has a
// version.
var version string

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "allocscope %s %s/%s %s\n", versionText(),
				runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}
