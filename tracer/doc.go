// Package tracer traces a running process, or the processes of its tree that matter, and reads the
// memory that they hold. It stops nothing and writes nothing into a process. It knows neither files
// nor statistics.
//
// A [Session] lasts from [Open] to [Session.Close]. In between, its caller calls [Session.Follow]
// and [Session.Sample] about once a second, and [Session.Snapshot] now and then.
//
// [Options.Launch] starts the process, whose allocations count from the first on.
//
// # One target
//
// A target is a traced process. lifecycle.go has its states and the transitions between them, each
// a function of that name:
//
//	           prepare         attach         trace
//	process ──────────► prepared ────► attached ────► traced
//	 ▲   (add: all three)   │              │             │  end: exit, execve, a process that does
//	 │                      │ failed       │ failed      │  not answer, no C library yet
//	 │        retire        ▼      stop    ▼             ▼
//	 └─────────────────── stopped ◄──────────────────── ended
//
// The states are:
//   - prepared: its stacks can be walked and named. No source is attached.
//   - attached: its sources are attached, and the BPF programs ignore it (bpf.TargetWaiting).
//   - traced: its allocations count (bpf.TargetTraced).
//   - ended: nothing counts any more (bpf.TargetGone). Snapshots have the memory that was alive,
//     until its place is needed, or its PID is another program's.
//   - stopped: its goroutines have ended.
//
// Package source has the states of its sources.
//
// # One allocation
//
//   - A probe on malloc runs a BPF program (package probe attaches it), which counts the call and
//     samples it: one of S bytes with probability 1 - exp(-S/interval). A sampled object is put
//     into the live map with its stack ID. A stack that is new is sent through the ring buffer.
//   - eventReader reads the ring buffer, and the target's stack.Table names the stack.
//   - A probe on free deletes the object. Frees between bursts are not seen: package liveness
//     checks from outside which objects have died since.
//   - A snapshot reads the live map. Package estimate weights each object that may be alive, and
//     sums the weights by stack. The sums become estimate.Holdings: one row for each stack and
//     kind.
//
// # One sample of RSS
//
//   - The mapping calls that eventReader has kept bring the target's addrspace.IntervalSet up to
//     date, and /proc/PID/maps corrects it.
//   - A residency.Tracker scans the page map: which pages of which mapping are in memory.
//   - residency.Rows gives each resident page to a holding: to the live objects on it, to the
//     stack that mapped it, to the stack of its page fault, or to a named rest. The rows of a
//     process sum to its RSS.
//   - The holdings, with the evidence for each, are the growth.Snapshot.
//
// # Locks
//
// They are taken in this order, and none of them is held while the caller of a session runs:
//
//  1. Session.following, while the process tree or a snapshot is read, and while processes become
//     targets and are retired: programs of a Launch do so in a goroutine of their own.
//  2. Session.reading, while a process's memory or its files in /proc are read from another
//     goroutine than the caller's, while heap probes come and go, and while a process is closed.
//  3. probing.mu, while probes come and go, and while the live map is read as a whole.
//  4. targetSet.mu, for one access to the list.
//  5. The locks of a target's sources: Libraries.updating, while files are read; then the locks of
//     one source, while its probes come and go. A burst waits for the second alone.
//
// The controller's goroutine opens and closes probes (package overhead). The ring buffer's
// goroutines take none of the first three, because these may be held during a flush, which waits
// for them.
package tracer
