// Package user starts programs as the user who called sudo.
package user

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/allocscope/allocscope/export/folder"
)

// ErrRoot means that no user but root is known.
var ErrRoot = errors.New("there is no user behind root")

// dropped are the variables that the environment of another user has, or that sudo has set.
var dropped = []string{
	"HOME", "USER", "LOGNAME", "MAIL", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
	"SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME",
}

// Command prepares a program that runs as the owner: as the current user, or as the user behind sudo
// with that user's groups, home and session. The owner is as folder.OwnerFromEnvironment returns it.
func Command(
	ctx context.Context, owner folder.Owner, name string, arguments ...string,
) *exec.Cmd {
	command := exec.CommandContext(ctx, name, arguments...)
	if owner.UID == os.Geteuid() {
		return command
	}

	home, login, groups := "/", "", []uint32{uint32(owner.GID)}
	if account, err := user.LookupId(strconv.Itoa(owner.UID)); err == nil {
		home, login = account.HomeDir, account.Username
		groups = append(groups, groupsOf(account)...)
	}

	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uint32(owner.UID), Gid: uint32(owner.GID), Groups: groups,
	}}
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		variable, _, _ := strings.Cut(entry, "=")
		return slices.Contains(dropped, variable)
	})

	runtime := fmt.Sprintf("/run/user/%d", owner.UID)
	command.Env = append(command.Env, "HOME="+home, "XDG_RUNTIME_DIR="+runtime,
		"DBUS_SESSION_BUS_ADDRESS=unix:path="+runtime+"/bus")
	if login != "" {
		command.Env = append(command.Env, "USER="+login, "LOGNAME="+login)
	}
	return command
}

func groupsOf(account *user.User) (groups []uint32) {
	ids, err := account.GroupIds()
	if err != nil {
		return nil
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			groups = append(groups, uint32(n))
		}
	}
	return groups
}

// CommandOfPerson is Command for a program that root must not run, such as a browser. The error is
// ErrRoot where the owner is root.
func CommandOfPerson(
	ctx context.Context, owner folder.Owner, name string, arguments ...string,
) (*exec.Cmd, error) {
	if owner.UID == 0 {
		return nil, ErrRoot
	}
	return Command(ctx, owner, name, arguments...), nil
}
