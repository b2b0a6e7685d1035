package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// A machine boots a kernel with a root file system.
type machine struct {
	image, root  string
	log, console string // files for what the jobs print and for the kernel's messages
	limit        time.Duration
}

// boot runs a machine until it switches itself off. All is emulated, by one thread: /dev/kvm may open and not work, and the
// emulation with more threads hangs. Without cmpxchg16b: qemu 7.2 can spoil the flags behind it, and the kernel panics. Newer
// kernels allocate the memory of BPF programs with that instruction alone (kmalloc_nolock), unless their allocator is debugged.
// Kernels do not test the timer (no_timer_check): on a busy machine its ticks come too late, and they panic.
func boot(ctx context.Context, m machine) error {
	ctx, stop := context.WithTimeoutCause(ctx, m.limit, fmt.Errorf("not done after %s", m.limit))
	defer stop()
	command := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg,thread=single", "-M", "q35", "-cpu", "max,-cx16", "-smp", "1", "-m", "2G",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:"+m.console, "-serial", "file:"+m.log,
		"-kernel", m.image, "-initrd", m.root,
		"-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off no_timer_check slab_debug=F,kmalloc-* rdinit=/init")
	out, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("run qemu: %w", err), errors.New(string(out)))
	}
	return nil
}
