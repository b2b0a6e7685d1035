package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/view"
	"github.com/allocscope/allocscope/export/page/origin"
)

// viewFlags are the flags of `allocscope view`.
type viewFlags struct {
	address string
	open    bool
}

func newViewCommand() *cobra.Command {
	var flags viewFlags
	command := &cobra.Command{
		Use:   "view [DIR]",
		Short: "Show a trace in the browser: its report, and its profiles in pprof",
		Long: `View serves the folder of a trace as web pages until it is interrupted, and prints their
address. Without DIR it takes the latest trace, by allocscope-latest. It needs no privilege but to
read the folder. On a machine that you reach by SSH it prints the command that makes the pages
reachable from yours.

Every user of this machine may read the pages. docs/reference/view.md explains what is served, and what is
not.`,
		Example: `  allocscope view
  allocscope view --open
  allocscope view allocscope-4242-20260102-150405 --http 127.0.0.1:8080`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folder,
		RunE: func(command *cobra.Command, arguments []string) error {
			return runView(command, flags, arguments)
		},
	}

	command.Flags().StringVar(&flags.address, "http", "127.0.0.1:0",
		"address to listen at, HOST:PORT; port 0: any free port")
	command.Flags().BoolVar(&flags.open, "open", false,
		"open the pages in a browser ($BROWSER, or xdg-open), never as root")
	return command
}

func runView(command *cobra.Command, flags viewFlags, arguments []string) error {
	host, port, err := net.SplitHostPort(flags.address)
	if err != nil {
		return exit.Usage(fmt.Errorf("--http %q is not HOST:PORT (such as 127.0.0.1:8080)",
			flags.address))
	}

	if host == "" {
		host = "127.0.0.1" // all addresses: 0.0.0.0
	}

	dir, behindSudo, err := openTrace(command, arguments)
	if err != nil {
		return err
	}
	defer dir.Close()
	pages, err := view.New(dir, os.Geteuid() != 0)
	if err != nil {
		return exit.Refuse(err)
	}

	listener, err := listen(command.Context(), host, port)
	if err != nil {
		return exit.Refuse(fmt.Errorf("view %s: %w (choose another address with --http)", dir.Path(), err))
	}

	at := listener.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() {
		slog.Warn(
			fmt.Sprintf(
				"%s is no loopback address: everyone who reaches it can read this trace, with "+
					"names of files, functions and processes%s, unencrypted and without a password",
				at,
				sourcesToo(),
			),
		)
	}

	if _, err := fmt.Fprintln(command.OutOrStdout(), urlOf(at)); err != nil {
		_ = listener.Close()
		return err
	}
	if line := view.Tunnel(at, os.Getenv); line != "" {
		slog.Info(line)
	}
	if flags.open { // before limitTools, which a browser would inherit
		if err := view.OpenBrowser(command.Context(), urlOf(at), behindSudo); err != nil {
			slog.Warn(err.Error())
		}
	}
	if err := limitTools(); err != nil {
		_ = listener.Close()
		return err
	}

	return servePages(command.Context(), listener, view.Guard(pages, origin.HostsOf(at, host)))
}

// maxToolSeconds bounds the CPU time of dot: a dense graph takes it hours, and pprof waits for it.
const maxToolSeconds = 10

// limitTools bounds the CPU time of tools that pprof runs. A process inherits the limit and counts
// from its own start. The kernel ends it by SIGXCPU then (setrlimit(2)), which this Go program
// ignores.
func limitTools() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CPU, &limit)
	if err == nil {
		limit.Cur = min(limit.Cur, maxToolSeconds)
		err = unix.Setrlimit(unix.RLIMIT_CPU, &limit)
	}

	if err == nil { // without it SIGXCPU leaves a core file
		err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	}
	if err != nil {
		return fmt.Errorf("limit the CPU time of dot: %w", err)
	}
	return nil
}

// listen listens at exactly the given address: network tcp would turn 0.0.0.0 into all addresses of
// IPv6, too.
func listen(ctx context.Context, host, port string) (net.Listener, error) {
	network := "tcp"
	if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
		network = "tcp4"
	}
	return new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, port))
}

// urlOf is the URL of an address: with the name of the machine if it covers every address.
func urlOf(at *net.TCPAddr) string {
	address := at.String()
	if name, err := os.Hostname(); err == nil && at.IP.IsUnspecified() {
		address = net.JoinHostPort(name, strconv.Itoa(at.Port))
	}
	return "http://" + address + "/"
}

// sourcesToo warns of the other files that can be read where pprof shows sources.
func sourcesToo() string {
	if os.Geteuid() == 0 {
		return ""
	}
	return ", and every file of yours that its profiles name as a source"
}

// servePages serves until the context ends, which is no error.
func servePages(ctx context.Context, listener net.Listener, handler http.Handler) error {
	const (
		headerTimeout   = 10 * time.Second
		pageTimeout     = 5 * time.Minute // until the browser has received its last byte
		idleTimeout     = 2 * time.Minute
		shutdownTimeout = 2 * time.Second // for pages in the making
	)
	server := &http.Server{
		Handler: handler, IdleTimeout: idleTimeout,
		ReadTimeout: headerTimeout, WriteTimeout: pageTimeout,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}

	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		limited, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close()
		}
	})

	err := server.Serve(listener)
	if !stop() {
		<-ended
	}

	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}

	return fmt.Errorf("serve pages: %w", err)
}
