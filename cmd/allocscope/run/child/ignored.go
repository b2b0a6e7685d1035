//go:build !cgo

package child

import (
	"os/signal"
	"syscall"
)

// Ignored returns the signals that this program was started with as ignored. Without cgo only two
// are known: Go's runtime replaces the others before the program begins. A shell ignores SIGQUIT
// where it ignores SIGINT.
func Ignored() (ignored Signals) {
	if signal.Ignored(syscall.SIGHUP) {
		ignored |= 1 << (syscall.SIGHUP - 1)
	}
	if signal.Ignored(syscall.SIGINT) {
		ignored |= 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1)
	}
	return ignored
}
