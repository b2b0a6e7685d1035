package objects_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKeepers compares who is said to keep objects with the truth, which the programs of
// testdata/keepers have at their heads.
func TestKeepers(t *testing.T) {
	t.Run("gc gives the same account", testKeepersByGC)
	t.Run("programs of Python", testKeepersPython)
	t.Run("programs of C and C++", testKeepersNative)
}

// share returns about six of the programs, other ones for each interpreter, or all of them.
func share(all []program, interpreter int) (some []program) {
	const few = 6
	stride := max(1, len(all)/few)
	for i, one := range all {
		if whole || i%stride == interpreter%stride {
			some = append(some, one)
		}
	}
	return some
}

// eachPython calls f with each interpreter and the programs for it, at the same time.
func eachPython(t *testing.T, f func(t *testing.T, p python, some []program)) {
	all := programs(t, ".py")
	for i, p := range pythons(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var can []program
			for _, one := range all {
				if p.canRun(one) {
					can = append(can, one)
				}
			}
			f(t, p, share(can, i))
		})
	}
}

// The interpreter itself can find what refers to an object. That judges the programs, not
// allocscope.
func testKeepersByGC(t *testing.T) {
	if !whole {
		return
	}
	eachPython(t, func(t *testing.T, p python, some []program) {
		for _, one := range some {
			t.Run(one.name(), func(t *testing.T) {
				if one.unseen {
					return
				}
				target := tracertest.StartCommand(t, p.run(t, nil, one.file, "check"))
				found := target.Await("done")
				for _, root := range one.keptBy {
					if !slices.Contains(found, root) {
						t.Errorf("gc does not know of %q; it knows %q", root, found)
					}
				}
				if len(one.keptBy) == 0 && !slices.Equal(found, []string{"nothing"}) {
					t.Errorf("nothing keeps the objects, and gc finds %q", found)
				}
			})
		}
	})
}

// A score counts the answers about the programs that one interpreter runs.
type score struct {
	programs, found int
	missed          []string
}

func testKeepersPython(t *testing.T) {
	var lock sync.Mutex
	scores := map[string]*score{}
	t.Run("on", func(t *testing.T) {
		eachPython(t, func(t *testing.T, p python, some []program) {
			s := &score{}
			for _, one := range some {
				t.Run(one.name(), func(t *testing.T) {
					s.judge(t, one, tracertest.StartCommand(t, p.run(t, nil, one.file)))
				})
			}
			s.mustBeGood(t)
			lock.Lock()
			defer lock.Unlock()
			scores[p.name] = s
		})
	})

	for name, s := range scores {
		t.Logf("%-22s %2d of %2d found; not: %q", name, s.found, s.programs, s.missed)
	}
}

func testKeepersNative(t *testing.T) {
	s := &score{}
	for _, one := range programs(t, ".c", ".cc") {
		t.Run(one.name(), func(t *testing.T) {
			s.judge(t, one, tracertest.Start(t, tracertest.Build(t, one.file, "-pthread")))
		})
	}
	if len(s.missed) > 0 {
		t.Errorf("not found: the keepers of %q", s.missed)
	}
}

// mustBeGood fails unless the keepers of 28 of 30 programs are found.
func (s *score) mustBeGood(t *testing.T) {
	t.Helper()
	if allowed := max(1, s.programs*2/30); len(s.missed) > allowed {
		t.Errorf("not found: %d of %d programs' keepers: %q", len(s.missed), s.programs, s.missed)
	}
}

// judge searches for the keeper in a program that has been started. A wrong name is an error; a
// program without a keeper must have none.
func (s *score) judge(t *testing.T, one program, target *tracertest.Target) {
	t.Helper()
	before := readTruth(t, target)
	heap := tracertest.Must(objects.Open(openProcess(t, before.pid)))(t)

	suspects := []objects.Suspect{{Type: before.kind, Objects: before.objects}}
	searches, err := heap.Search(t.Context(), suspects, time.Minute)
	if err != nil || len(searches) != 1 {
		t.Fatalf("%d searches, %v", len(searches), err)
	}

	found := searches[0]
	said := describe(found)
	t.Log(said)
	mustNotBeLost(t, one, heap, suspects[0].Objects)
	for _, path := range found.Paths {
		if root := rootAsCode(path.Root); !one.isTrue(root) {
			t.Errorf("%q does not keep the objects; %q do (%s)", root, one.keptBy, said)
		}
	}
	if one.garbage && found.Garbage == 0 {
		t.Errorf("%s, want garbage", said)
	}
	if len(one.keptBy) == 0 {
		return
	}

	s.programs++
	if len(found.Paths) == 0 || !one.isTrue(rootAsCode(found.Paths[0].Root)) {
		s.missed = append(s.missed, one.name())
		return
	}
	s.found++
	if one.each {
		mustNameEach(t, one, found)
	}
	if first := found.Paths[0].Samples; one.container != "" && 2*first < found.Samples {
		t.Errorf("the first path explains %d of %d samples", first, found.Samples)
	}
	if one.container != "" {
		mustHaveContainer(t, one, before.noted, target, found.Paths[0])
	}
}

// mustNotBeLost fails if objects that something keeps, or that wait for the garbage collector, are
// called lost.
func mustNotBeLost(t *testing.T, one program, heap *objects.Heap, addresses []uint64) {
	t.Helper()
	sweep, err := heap.SweepFor(t.Context(), addresses)
	if err != nil {
		t.Error(err)
	}
	isLost := (len(one.keptBy) == 0 || one.isTrue(cycleRoot)) &&
		!strings.HasPrefix(one.name(), "garbage_")
	isProven := sweep.Premise == keeper.PremiseHolds // a pass may be too slow on a busy machine
	if !isLost && isProven && len(sweep.Lost) > 0 {
		t.Errorf("%d of %d are called lost", len(sweep.Lost), sweep.Samples)
	}
	t.Logf("%d of %d are lost (%q)", len(sweep.Lost), sweep.Samples, sweep.Premise)
}

// mustHaveContainer checks the first container on the way. The program may have added entries
// while it was searched for.
func mustHaveContainer(
	t *testing.T, one program, least int64, target *tracertest.Target, path keeper.Path,
) {
	t.Helper()
	most := one.entries
	if one.entries < 0 {
		target.Say("count")
		most = readTruth(t, target).noted
	} else {
		least = one.entries
	}

	i := slices.IndexFunc(path.Links, func(l keeper.Link) bool { return l.Entries >= 0 })
	if i < 0 {
		t.Errorf("no container on the way, want %s", one.container)
		return
	}
	if l := path.Links[i]; l.Type != one.container || int64(l.Entries) < least || int64(l.Entries) > most+1 {
		t.Errorf("the first container is %s with %d entries, want %s with %d to %d",
			l.Type, l.Entries, one.container, least, most)
	}
}

// cycleRoot is no variable: nothing leads to the cycle, which is lost, too.
const cycleRoot = "a cycle of C++ objects"

// rootAsCode is a root as the programs write it.
func rootAsCode(r keeper.Root) string {
	module := r.Module
	if module == "__main__" {
		module = strings.TrimSuffix(filepath.Base(r.File), ".py")
	}
	// Before 3.11 code has no qualified name.
	function := r.Owner[strings.LastIndexByte(r.Owner, '.')+1:]
	place := fmt.Sprintf("%s() (%s)", function, filepath.Base(r.File))

	switch r.Kind {
	case keeper.RootGlobal:
		return module + "." + r.Name
	case keeper.RootClass:
		return module + "." + r.Owner + "." + r.Name
	case keeper.RootLocal:
		return "local " + r.Name + " of " + place
	case keeper.RootGenerator, keeper.RootCoroutine:
		return fmt.Sprintf("local %s of %s %s", r.Name, r.Kind, place)
	case keeper.RootClosure:
		return fmt.Sprintf("closure variable %s of %s()", r.Name, r.Owner)
	case keeper.RootDefault:
		return fmt.Sprintf("default argument %s of %s()", r.Name, r.Owner)
	case keeper.RootCache:
		return fmt.Sprintf("lru_cache of %s()", r.Owner)
	case keeper.RootStatic:
		return filepath.Base(r.Module) + ": " + r.Name
	case keeper.RootThread:
		return "stack of native thread"
	case keeper.RootCycle:
		return cycleRoot
	}
	return fmt.Sprintf("%+v", r)
}

// describe is a search in a line.
func describe(s keeper.Search) string {
	var text strings.Builder
	for _, path := range s.Paths {
		fmt.Fprintf(&text, "%d of %d: %s", path.Samples, s.Samples, rootAsCode(path.Root))
		for _, l := range path.Links {
			fmt.Fprintf(&text, " -%s %s-> %s", l.How, l.Name, l.Type)
			if l.Entries >= 0 {
				fmt.Fprintf(&text, "(%d)", l.Entries)
			}
		}
		fmt.Fprintf(&text, " complete=%t; ", path.Complete)
	}
	return fmt.Sprintf("%s%s, %d garbage, took %v", text.String(), s.Reason, s.Garbage, s.Took)
}

// mustNameEach fails unless there is a path for each variable that keeps the samples, and none that
// claims to be the only one.
func mustNameEach(t *testing.T, one program, found keeper.Search) {
	t.Helper()
	var roots []string
	for _, path := range found.Paths {
		if roots = append(roots, rootAsCode(path.Root)); path.Complete || path.Samples < found.Samples {
			t.Errorf("%q: %d of %d samples, complete: %t", rootAsCode(path.Root), path.Samples,
				found.Samples, path.Complete)
		}
	}
	for _, root := range one.keptBy {
		if !slices.Contains(roots, root) {
			t.Errorf("%q keeps the objects, too; named are %q", root, roots)
		}
	}
}

// limitsScript prints for each container its name, its limit, and the addresses of its entries.
const limitsScript = `
import asyncio, collections, functools, os, queue
class Item:
    pass
class Owner:
    pass

def show(name, limit, items):
    print(name, limit, *map(id, items))
@functools.lru_cache(maxsize=5000)
def cached(number):
    return Item()
@functools.lru_cache(maxsize=None)
def endless(number):
    return Item()
show("cached", 5000, [cached(i) for i in range(300)][::40])
show("endless", 0, [endless(i) for i in range(300)][::40])
recent = collections.deque((Item() for i in range(300)), maxlen=6000)
show("recent", 6000, list(recent)[::40])
waiting = collections.deque(Item() for i in range(300))
show("waiting", 0, list(waiting)[::40])
owner = Owner()
owner.recent = collections.deque((Item() for i in range(300)), 7000)
show("owner", 7000, list(owner.recent)[::40])

class Cache:
    def __init__(self, maxsize, currsize):
        self.__maxsize, self.__currsize = maxsize, currsize
        self.__data = {i: Item() for i in range(300)}
    def items(self):
        return list(self.__data.values())[::40]
class Named:
    def __init__(self):
        self.maxsize, self.items = 9000, [Item() for i in range(300)]
counted, sized, named = Cache(8000, 300), Cache(1 << 20, 1 << 16), Named()
show("counted", 8000, counted.items())
show("sized", 4800, sized.items())
show("named", 0, named.items[::40])
queues = [queue.Queue(9000), queue.LifoQueue(9001), queue.Queue(), asyncio.Queue(9002)]
for i, q in enumerate(queues):
    for _ in range(300):
        q.put_nowait(Item())
    globals()["queue%d" % i] = q
    show("queue%d" % i, q.maxsize, list(q._queue if i == 3 else q.queue)[::40])
del queues, q
print("pid", os.getpid())
print("done", flush=True)
input()
`

// TestLimits reads the limits of containers of each interpreter.
func TestLimits(t *testing.T) {
	for _, p := range pythons(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			command := append(slices.Clone(p.command), "-c", limitsScript)
			if p.root != "" {
				command = append([]string{"chroot", p.root}, command...)
			}
			target := tracertest.StartCommand(t, exec.Command(command[0], command[1:]...))

			names, limits, searches := searchItems(t, target)
			for i, found := range searches {
				if !hasLimit(found, limits[i]) {
					t.Errorf("%s has not 300 entries of %d: %s, %+v", names[i], limits[i],
						describe(found), found.Paths)
				}
			}
		})
	}
}

// searchItems searches for the items of a program. It prints the name of each container, its limit,
// and the addresses of its items.
func searchItems(
	t *testing.T, target *tracertest.Target,
) (names []string, limits []int64, searches []keeper.Search) {
	t.Helper()
	pid := 0
	var suspects []objects.Suspect
	for _, line := range target.Await("done") {
		name, numbers := objects.NumbersOf(t, line)
		if name == "pid" {
			pid = int(numbers[0])
			continue
		}
		names, limits = append(names, name), append(limits, int64(numbers[0]))
		suspects = append(suspects, objects.Suspect{
			Type: "__main__.Item", Stack: uint64(len(names)), Objects: numbers[1:],
		})
	}

	heap := tracertest.Must(objects.Open(openProcess(t, pid)))(t)
	searches = tracertest.Must(heap.Search(t.Context(), suspects, time.Minute))(t)
	if len(searches) != len(names) {
		t.Fatalf("%d searches", len(searches))
	}
	return names, limits, searches
}

// hasLimit reports whether a path leads to all samples, by one container with that limit alone.
func hasLimit(found keeper.Search, limit int64) bool {
	if len(found.Paths) == 0 || found.Paths[0].Samples < found.Samples {
		return false
	}
	containers := 0
	for _, l := range found.Paths[0].Links {
		if l.Entries == 300 && l.Limit == limit {
			containers++
		} else if l.Limit != 0 {
			return false
		}
	}
	return containers == 1
}

// writeOnlyScript prints, for each list, its name, that it has no limit, and the addresses of its
// entries. Code reads or empties some of the lists.
const writeOnlyScript = `
import os, sys

class Item:
    pass

class Owner:
    def __init__(self):
        self.noted = []
        self.counted = []

    def keep(self):
        self.noted.append(item("owner.noted"))
        self.counted.append(item("owner.counted"))
        return len(self.counted)

def outer():
    enclosed = []

    def keep():
        enclosed.append(item("outer.enclosed"))

    return keep

addresses = {}
written = []
emptied = []
owner = Owner()
keep = outer()

def item(name):
    one = Item()
    addresses.setdefault(name, []).append(id(one))
    return one

def main():
    for _ in range(300):
        written.append(item("global.written"))
        emptied.append(item("emptied"))
        owner.keep()
        keep()
    for name in sorted(addresses):
        print(name, 0, *addresses[name][::40])
    print("pid", os.getpid())
    print("done", flush=True)
    sys.stdin.read()
    emptied.clear()

main()
`

// TestWriteOnly finds the containers that the source of a program only writes.
func TestWriteOnly(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script.py")
	tracertest.NoError(t, os.WriteFile(script, []byte(writeOnlyScript), 0o600))
	time.Sleep(20 * time.Millisecond) // a source that is younger than its process has changed
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", script))

	want := map[string]bool{
		"global.written": true, "owner.noted": true, "outer.enclosed": true,
		"emptied": false, "owner.counted": false,
	}
	names, _, searches := searchItems(t, target)
	if len(searches) != len(want) {
		t.Fatalf("%d searches", len(searches))
	}
	for i, found := range searches {
		isWriteOnly := len(found.Paths) > 0 && slices.ContainsFunc(found.Paths[0].Links,
			func(l keeper.Link) bool { return l.WriteOnly })
		if isWriteOnly != want[names[i]] {
			t.Errorf("%s is only written: %t, %s", names[i], isWriteOnly, describe(found))
		}
	}
}
