package view

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/allocscope/allocscope/cmd/allocscope/user"
	"github.com/allocscope/allocscope/export/folder"
)

// Tunnel is what to type on another machine to reach the pages, where allocscope was started through
// SSH: "ssh -L ..."; empty elsewhere. getenv is os.Getenv.
func Tunnel(at *net.TCPAddr, getenv func(string) string) string {
	// SSH_CONNECTION has the address and the port of the client, and then of the server (ssh(1)).
	fields := strings.Fields(getenv("SSH_CONNECTION"))
	if len(fields) != 4 {
		return ""
	}
	server, err := netip.ParseAddr(fields[2])
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(fields[3], 10, 16)
	if err != nil {
		return ""
	}

	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	if at.IP.To4() == nil && !at.IP.IsUnspecified() {
		host = "[" + host + "]"
	}
	command := "ssh"
	if port != 22 {
		command += fmt.Sprintf(" -p %d", port)
	}
	return fmt.Sprintf("from your machine: %s -L %d:%s:%d %s, then open http://127.0.0.1:%d/",
		command, at.Port, host, at.Port, server.WithZone(""), at.Port)
}

// OpenBrowser opens a page in the browser of the owner, and does not wait for it: by $BROWSER, a list
// of commands with colons between them, or by xdg-open. It never runs one as root.
func OpenBrowser(ctx context.Context, url string, owner folder.Owner) error {
	browsers := strings.FieldsFunc(os.Getenv("BROWSER"), func(r rune) bool { return r == ':' })
	hasDisplay := os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
	switch {
	case len(browsers) == 0 && !hasDisplay:
		return errors.New("open a browser: there is no display here (open the address yourself)")
	case len(browsers) == 0:
		browsers = []string{"xdg-open"}
	}

	var errs []error
	for _, browser := range browsers {
		err := start(ctx, browser, url, owner)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("open a browser: %w (open the address yourself)", errors.Join(errs...))
}

// start starts a browser: a command whose %s is the page, or whose last argument it is.
func start(ctx context.Context, browser, url string, owner folder.Owner) error {
	fields := strings.Fields(browser)
	if len(fields) == 0 {
		return errors.New("$BROWSER has an empty command")
	}

	hasPage := false
	for i, field := range fields {
		if strings.Contains(field, "%s") {
			fields[i], hasPage = strings.ReplaceAll(field, "%s", url), true
		}
	}
	if !hasPage {
		fields = append(fields, url)
	}

	path, err := exec.LookPath(fields[0])
	if err != nil {
		return err
	}
	// It outlives allocscope, as one that a user has opened does.
	command, err := user.CommandOfPerson(context.WithoutCancel(ctx), owner, path, fields[1:]...)
	if err != nil {
		return err
	}
	command.Dir = "/"
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setsid = true // Ctrl-C is for allocscope

	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	return nil
}
