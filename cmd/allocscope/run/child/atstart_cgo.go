//go:build cgo

package child

/*
#include <signal.h>
#include <stdint.h>

static uint64_t ignored, blocked;

// Go's runtime replaces and unblocks signals before the program begins. A constructor runs before
// it.
__attribute__((constructor)) static void record_signals(void) {
	sigset_t set;

	sigprocmask(SIG_BLOCK, 0, &set);
	for (int n = 1; n <= 64; n++) {
		struct sigaction action;
		if (sigaction(n, 0, &action) == 0 && action.sa_handler == SIG_IGN)
			ignored |= (uint64_t)1 << (n - 1);
		if (sigismember(&set, n) == 1)
			blocked |= (uint64_t)1 << (n - 1);
	}
}

static uint64_t ignored_at_start(void) { return ignored; }
static uint64_t blocked_at_start(void) { return blocked; }
*/
import "C"

// AtStart returns the signals that this program was started with as ignored and as blocked.
func AtStart() (ignored, blocked Signals) {
	return Signals(C.ignored_at_start()), Signals(C.blocked_at_start())
}
