//go:build cgo

package child

/*
#include <signal.h>
#include <stdint.h>

static uint64_t ignored;

// Go's runtime replaces what is ignored before the program begins. A constructor runs before it.
__attribute__((constructor)) static void record_ignored(void) {
	for (int n = 1; n <= 64; n++) {
		struct sigaction action;
		if (sigaction(n, 0, &action) == 0 && action.sa_handler == SIG_IGN)
			ignored |= (uint64_t)1 << (n - 1);
	}
}

static uint64_t ignored_at_start(void) { return ignored; }
*/
import "C"

// Ignored returns the signals that this program was started with as ignored.
func Ignored() Signals { return Signals(C.ignored_at_start()) }
