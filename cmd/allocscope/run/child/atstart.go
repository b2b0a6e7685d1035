//go:build !cgo

package child

import (
	"os/signal"
	"syscall"
)

// blockedAtStart are the signals that Go's runtime has left blocked.
var blockedAtStart = func() (blocked Signals) {
	_ = setBlocked(nil, &blocked) // it cannot fail
	return blocked
}()

// AtStart returns the signals that this program was started with as ignored and as blocked. Without
// cgo it knows some only: Go's runtime replaces and unblocks the others before the program begins.
// A shell ignores SIGQUIT where it ignores SIGINT.
func AtStart() (ignored, blocked Signals) {
	if signal.Ignored(syscall.SIGHUP) {
		ignored |= 1 << (syscall.SIGHUP - 1)
	}
	if signal.Ignored(syscall.SIGINT) {
		ignored |= 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1)
	}
	return ignored, blockedAtStart
}
