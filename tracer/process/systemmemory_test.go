package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Lines of /proc/self/mountinfo.
const (
	mountV2 = "27 1 254:0 / / rw - ext4 /dev/vda rw\n" +
		"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1 = "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)

// files are the contents of a root directory by path.
type files map[string]string

// add adds the memory files of a cgroup; stat "" means none.
func (f files) add(v memoryFiles, folder, limit, usage, stat string) files {
	folder = "sys/fs/cgroup/" + folder + "/"
	f[folder+v.limit], f[folder+v.usage] = limit+"\n", usage+"\n"
	if stat != "" {
		f[folder+"memory.stat"] = stat
	}
	return f
}

// read writes the files and reads the memory of a member of cgroups.
func (f files) read(t *testing.T, mounts, membership string) growth.SystemMemory {
	t.Helper()
	f["proc/self/mountinfo"] = mounts
	f["proc/meminfo"] = "MemTotal:       4096 kB\nMemAvailable:   2048 kB\nSwapFree:        512 kB\n" +
		"Shmem:             64 kB\nSUnreclaim:        32 kB\n"
	root := t.TempDir()
	for name, text := range f {
		path := filepath.Join(root, name)
		tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		tracertest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return newSystemMemoryReader(root).readFor([]byte(membership))
}

func (f files) mustRead(t *testing.T, mounts, membership string, used, limit int64) {
	t.Helper()
	got := f.read(t, mounts, membership)
	got.CgroupCache, got.CgroupActive, got.Shared, got.Kernel = 0, 0, 0, 0
	want := growth.SystemMemory{
		Available: 2048 << 10, SwapFree: 512 << 10, CgroupUsed: used, CgroupLimit: limit,
		CgroupSwapFree: 512 << 10, // unlimited
	}
	if limit == Unknown {
		want.CgroupSwapFree = Unknown
	}
	if got != want {
		t.Errorf("%q: %+v, want %+v", membership, got, want)
	}
}

func TestSystemMemoryReader(t *testing.T) {
	const unlimitedV1 = "9223372036854771712"
	const abc = "sys/fs/cgroup/a/b/c/"
	unified := files{abc + "memory.max": "max\n", abc + "memory.high": "1\n"}.
		add(memoryFilesV2, "a", "1000000", "900000", "anon 5\ninactive_file 50000\nactive_file 7\n").
		add(memoryFilesV2, "a/b", "500000", "300000", "inactive_file 0\n").
		add(memoryFilesV2, "none", "max", "1", "").
		add(memoryFilesV2, "x", "100", "300", "inactive_file 900\n").
		add(memoryFilesV2, "odd", "100", "60", "").
		add(memoryFilesV2, "sibling", "6000", "10", "")
	legacy := files{"sys/fs/cgroup/cpu/d/memory.limit": "1\n"}.
		add(memoryFilesV1, "memory", unlimitedV1, "77", "").
		add(memoryFilesV1, "memory/d", "4000", "3000", "inactive_file 1\ntotal_inactive_file 500\n").
		add(memoryFilesV1, "memory/d/e", unlimitedV1, "100", "total_inactive_file 50\n")
	container := files{}.add(memoryFilesV1, "memory", "4000", "1000", "")

	// A container without a cgroup namespace sees its own cgroup mounted, and paths from the host's
	// root. A mount from above our namespace shows paths above its root.
	const mountDocker = "35 31 0:32 /docker/1\\0402 /sys/fs/cgroup/memory rw " +
		"- cgroup cgroup rw,memory\n"
	const mountAbove = "30 23 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

	for name, c := range map[string]struct {
		files              files
		mounts, membership string
		used, limit        int64 // 0: Unknown
	}{
		"least headroom in the parent": {unified, mountV2, "0::/a/b/c\n", 850000, 1000000},
		"cgroup under removal":         {unified, mountV2, "0::/a/b/c (deleted)\n", 850000, 1000000},
		"limit of the cgroup itself":   {unified, mountV2, "0::/x\n", 0, 100},
		"no memory.stat":               {unified, mountV2, "0::/odd\n", 60, 100},
		"no limit":                     {unified, mountV2, "0::/none\n", 0, 0},
		"root":                         {unified, mountV2, "0::/\n", 0, 0},
		"outside of our root":          {unified, mountV2, "0::/../a\n", 0, 0},
		"path that climbs":             {unified, mountV2, "0::/none/../a\n", 0, 0},
		"no membership":                {unified, mountV2, "", 0, 0},
		"malformed membership":         {unified, mountV2, "0:\n::\n0\nx:y", 0, 0},
		"version 1 not mounted":        {unified, mountV2, "4:memory:/a\n", 0, 0},

		"version 1: parent":           {legacy, mountV1, "5:cpu:/d\n4:memory:/d/e\n", 2500, 4000},
		"version 1: controllers":      {legacy, mountV1, "4:hugetlb,memory:/d\n", 2500, 4000},
		"version 1: root":             {legacy, mountV1, "4:memory:/\n", 0, 0},
		"version 1: path with colons": {legacy, mountV1, "4:memory:/gone:with:colons\n", 0, 0},
		"version 1: CPU only":         {legacy, mountV1, "4:cpu:/d\n", 0, 0},
		"container":                   {container, mountDocker, "4:memory:/docker/1 2\n", 1000, 4000},
		"container: child":            {container, mountDocker, "4:memory:/docker/1 2/s\n", 1000, 4000},
		"container: another one":      {container, mountDocker, "4:memory:/docker/56\n", 0, 0},
		"container: host's root":      {container, mountDocker, "4:memory:/\n", 0, 0},
		"above":                       {unified, mountAbove, "0::/../sibling\n", 10, 6000},
		"above: further above":        {unified, mountAbove, "0::/../../sibling\n", 0, 0},
		"above: our root":             {unified, mountAbove, "0::/\n", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if c.limit == 0 {
				c.used, c.limit = Unknown, Unknown
			}
			c.files.mustRead(t, c.mounts, c.membership, c.used, c.limit)
		})
	}

	// The kernel throttles a cgroup at memory.high, long before it would end a process at memory.max.
	for name, c := range map[string]struct {
		high, max    string
		limit        int64
		isThrottling bool
	}{
		"memory.high below memory.max":    {"3000", "5000", 3000, true},
		"memory.high alone":               {"3000", "max", 3000, true},
		"memory.high above memory.max":    {"5000", "4000", 4000, false},
		"memory.high equals memory.max":   {"4000", "4000", 4000, false},
		"no memory.high":                  {"max", "4000", 4000, false},
		"neither":                         {"max", "max", Unknown, false},
		"memory.high that makes no sense": {"many", "4000", 4000, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := files{"sys/fs/cgroup/m/memory.high": c.high + "\n"}.
				add(memoryFilesV2, "m", c.max, "1000", "")
			got := f.read(t, mountV2, "0::/m\n")
			if got.CgroupLimit != c.limit || got.CgroupThrottles != c.isThrottling {
				t.Errorf("%+v, want limit %d, throttling %t", got, c.limit, c.isThrottling)
			}
		})
	}

	t.Run("both versions mounted", func(t *testing.T) {
		const mounts = mountV1 + "broken\n - \n" +
			"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		const membership = "4:memory:/m/y\n0::/m\n"
		f := files{"sys/fs/cgroup/memory/m/y/x": "", "sys/fs/cgroup/unified/m/x": ""}
		f.mustRead(t, mounts, membership, Unknown, Unknown)
		f.add(memoryFilesV1, "memory/m", "500", "400", "").mustRead(t, mounts, membership, 400, 500)
		f.add(memoryFilesV2, "unified/m", "50", "40", "").mustRead(t, mounts, membership, 40, 50)
	})

	t.Run("nothing readable", func(t *testing.T) {
		want := growth.SystemMemory{
			Available: Unknown, SwapFree: Unknown,
			CgroupUsed: Unknown, CgroupLimit: Unknown, CgroupCache: Unknown,
			CgroupSwapFree: Unknown, Shared: Unknown, Kernel: Unknown,
		}
		if got := newSystemMemoryReader(t.TempDir()).readFor([]byte("0::/\n")); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Free swap that the cgroup may fill comes before the end of a process, unless the kernel throttles
// first. Of the machine's, 512 KiB are free.
func TestCgroupSwap(t *testing.T) {
	const mib = 1 << 20
	const ofV1, ofV2 = "4:memory:/m\n", "0::/m\n"
	const limitV1, usageV1 = "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"
	for name, c := range map[string]struct {
		mounts, membership string
		more               files
		want               int64 // until the limit of 2 MiB, of which half is used
	}{
		"version 2: no swap": {
			mountV2, ofV2, files{"memory.swap.max": "0", "memory.swap.current": "0"}, mib,
		},
		"version 2: a limit": {
			mountV2, ofV2, files{"memory.swap.max": "90000", "memory.swap.current": "20000"}, mib + 70000,
		},
		"version 2: unlimited": {
			mountV2, ofV2, files{"memory.swap.max": "max", "memory.swap.current": "7"}, mib + 512<<10,
		},
		"version 2: throttled": {mountV2, ofV2, files{"memory.high": "2097151"}, mib - 1},
		"version 1: a limit": {
			mountV1, ofV1, files{limitV1: "2187152", usageV1: "1068576"}, mib + 70000,
		},
		"version 1: not counted": {mountV1, ofV1, files{}, mib + 512<<10},
	} {
		t.Run(name, func(t *testing.T) {
			v, folder := memoryFilesV2, "m"
			if c.mounts == mountV1 {
				v, folder = memoryFilesV1, "memory/m"
			}
			f := files{}.add(v, folder, "2097152", "1048576", "")
			for file, text := range c.more {
				f["sys/fs/cgroup/"+folder+"/"+file] = text + "\n"
			}
			memory := f.read(t, c.mounts, c.membership)
			memory.Available = Unknown
			if got := memory.Headroom().Left; got != c.want {
				t.Errorf("%d bytes left, want %d: %+v", got, c.want, memory)
			}
		})
	}
}

// Page cache, and the part of it on the active list, of the cgroup and all below it.
func TestCgroupCache(t *testing.T) {
	for _, c := range []struct {
		mounts, stat  string
		cache, active int64
	}{
		{mountV2, "anon 1\nfile 900\nshmem 200\ninactive_file 30\n", 700, 0},
		{mountV2, "file 900\n", Unknown, 0},
		{mountV2, "shmem 900\n", Unknown, 0},
		{mountV2, "file 100\nshmem 900\n", Unknown, 0},
		{mountV2, "file -1\nshmem -1\n", Unknown, 0},
		{mountV2, "file 900\nshmem many\n", Unknown, 0},
		{mountV2, "", Unknown, 0},
		{mountV2, "active_file 70\n", Unknown, 70},
		{mountV1, "cache 1\nshmem 1\ntotal_cache 800\ntotal_shmem 100\n", 700, 0},
		{mountV1, "active_file 7\ntotal_active_file 70\n", Unknown, 70},
	} {
		v, folder, membership := memoryFilesV2, "m", "0::/m\n"
		if c.mounts == mountV1 {
			v, folder, membership = memoryFilesV1, "memory/m", "4:memory:/m\n"
		}
		got := files{}.add(v, folder, "5000", "4000", c.stat).read(t, c.mounts, membership)
		if got.CgroupCache != c.cache || got.CgroupActive != c.active {
			t.Errorf("%q: %+v, want cache of %d bytes, %d active", c.stat, got, c.cache, c.active)
		}
	}
}

func TestSharedAndKernelMemory(t *testing.T) {
	const stat = "anon 1\nfile 900\nshmem 200\nslab_unreclaimable 40\n"
	f := files{}.add(memoryFilesV2, "m", "5000", "4000", stat)
	if got := f.read(t, mountV2, "0::/m\n"); got.Shared != 200 || got.Kernel != 40 {
		t.Errorf("of the cgroup: %+v", got)
	}
	unlimited := files{}.add(memoryFilesV2, "m", "max", "4000", stat)
	if got := unlimited.read(t, mountV2, "0::/m\n"); got.Shared != 64<<10 || got.Kernel != 32<<10 {
		t.Errorf("of the machine: %+v", got)
	}
}

// The oracle is a cgroup with a limit in the hierarchy that this machine has.
func TestSystemMemoryReaderOnThisMachine(t *testing.T) {
	const limit = 64 << 20
	folder, names := makeCgroup(t)
	write := func(path string, value int) {
		tracertest.NoError(t, os.WriteFile(path, []byte(fmt.Sprint(value)), 0o644))
	}
	write(filepath.Join(folder, names.limit), limit)

	program := tracertest.Build(t, "leak.c", "-pthread")
	target := tracertest.StartCommand(t, exec.Command(program, "1", "3000", "4096", "0"))
	write(filepath.Join(folder, "cgroup.procs"), target.PID())
	t.Cleanup(func() { write(filepath.Join(filepath.Dir(folder), "cgroup.procs"), target.PID()) })
	target.Await("ready")
	target.Say("go")
	target.Await("done")
	stop(t, target.PID())

	// For a while after the stop, the kernel takes back pages that it charged in advance, and freed
	// ones.
	var memory growth.SystemMemory
	p := open(t, target.PID())
	reader := NewSystemMemoryReader()
	used := readAtRest(t, func() int64 {
		return number(strings.TrimSpace(string(readFile(t, filepath.Join(folder, names.usage)))))
	}, func() { memory = reader.Read(p) })
	if memory.CgroupLimit != limit || memory.CgroupUsed > used || memory.CgroupUsed < 3000*4096 {
		t.Errorf("%+v; the kernel has charged %d of %d bytes", memory, used, limit)
	}

	if got := memory.Headroom(); got.Of != "cgroup" || got.Left != limit-memory.CgroupUsed {
		t.Errorf("headroom: %+v", got)
	}
	total := kibibytes(parseFields(readFile(t, "/proc/meminfo")), "MemTotal")
	if memory.Available <= 0 || memory.Available > total || memory.SwapFree < 0 {
		t.Errorf("%+v of a machine with %d bytes", memory, total)
	}

	tracertest.NoError(t, syscall.Kill(target.PID(), syscall.SIGKILL))
	for p.Alive() { // it is a zombie then
		time.Sleep(time.Millisecond)
	}
	if memory := reader.Read(p); memory.CgroupLimit != limit {
		t.Errorf("%+v once it has exited", memory)
	}
}

// makeCgroup makes a cgroup, and returns the names of its files.
func makeCgroup(t *testing.T) (string, memoryFiles) {
	t.Helper()
	g := tracertest.NewCgroup(t)
	if g.IsV2 {
		return g.Folder, memoryFilesV2
	}
	return g.Folder, memoryFilesV1
}

func FuzzHierarchies(f *testing.F) {
	f.Add(readFile(f, "/proc/self/mountinfo"), "/a/b")
	f.Add([]byte(mountV2), "/../x")
	f.Fuzz(func(t *testing.T, raw []byte, cgroup string) {
		for _, h := range parseMounts(raw, memoryController) {
			path, ok := h.folder(cgroup)
			if ok && (slices.Contains(path, "..") || slices.Contains(path, "")) {
				t.Errorf("%q in %+v leads to %q", cgroup, h, path)
			}
		}
	})
}

func TestProcessHeadroom(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		limits, of string
		bytes      int64
		used       string // field of /proc/PID/status
	}{
		{"--as=unlimited", "", 0, ""},
		{"--as=8589934592", growth.LimitAddressSpace, 8 * gib, "VmSize"},
		{"--data=1073741824", growth.LimitData, gib, "VmData"},
	} {
		target := tracertest.StartCommand(t, exec.Command("prlimit", c.limits, "sh", "-c", "echo ready; exec sleep 1000"))
		target.Await("ready")
		p := open(t, target.PID())
		want := growth.Headroom{Of: c.of, Bytes: c.bytes}
		var got growth.Headroom
		for range 1000 { // the shell may just execute sleep
			if c.of != "" {
				fields := parseFields(readFile(t, fmt.Sprintf("/proc/%d/status", target.PID())))
				want.Left = c.bytes - kibibytes(fields, c.used)
			}
			if got = p.Headroom(); got == want {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.limits, got, want)
		}
	}
}
