package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

const meminfo = "MemTotal:       4096 kB\nMemAvailable:   2048 kB\nSwapFree:        512 kB\n"

const (
	mounts2 = "27 1 254:0 / / rw - ext4 /dev/vda rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
	mounts1 = "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)

// fakeRoot is a root directory with those files.
func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTheCgroupThatLimitsFirstIsFound(t *testing.T) {
	const top = "sys/fs/cgroup/"
	unified := map[string]string{
		"proc/self/mountinfo":       mounts2,
		top + "a/memory.max":        "1000000\n",
		top + "a/memory.current":    "900000\n",
		top + "a/memory.stat":       "anon 5\ninactive_file 50000\nactive_file 7\n",
		top + "a/b/memory.max":      "500000\n",
		top + "a/b/memory.current":  "300000\n",
		top + "a/b/memory.stat":     "inactive_file 0\n",
		top + "a/b/c/memory.max":    "max\n",
		top + "a/b/c/memory.high":   "1\n",
		top + "none/memory.max":     "max\n",
		top + "none/memory.current": "1\n",
		top + "x/memory.max":        "100\n",
		top + "x/memory.current":    "300\n",
		top + "x/memory.stat":       "inactive_file 900\n",
		top + "odd/memory.max":      "100\n",
		top + "odd/memory.current":  "60\n",
	}
	for name, c := range map[string]struct {
		membership  string
		used, limit int64
	}{
		"the parent's room is smaller":    {"0::/a/b/c\n", 850000, 1000000},
		"a cgroup that is being removed":  {"0::/a/b/c (deleted)\n", 850000, 1000000},
		"the limit of the cgroup itself":  {"0::/x\n", 0, 100},
		"no memory.stat":                  {"0::/odd\n", 60, 100},
		"without a limit":                 {"0::/none\n", Unknown, Unknown},
		"the root":                        {"0::/\n", Unknown, Unknown},
		"outside of our namespace's root": {"0::/../a\n", Unknown, Unknown},
		"a path that climbs":              {"0::/none/../a\n", Unknown, Unknown},
		"version 1 alone":                 {"4:memory:/a\n", Unknown, Unknown},
		"no membership":                   {"", Unknown, Unknown},
		"nonsense":                        {"0:\n::\n0\nx:y", Unknown, Unknown},
	} {
		t.Run(name, func(t *testing.T) { mustBeAround(t, unified, c.membership, c.used, c.limit) })
	}
}

func TestTheCgroupOfVersionOneThatLimitsFirstIsFound(t *testing.T) {
	const top = "sys/fs/cgroup/memory/"
	files := map[string]string{
		"proc/self/mountinfo":              mounts1,
		top + "memory.limit_in_bytes":      "9223372036854771712\n",
		top + "memory.usage_in_bytes":      "77\n",
		top + "d/memory.limit_in_bytes":    "4000\n",
		top + "d/memory.usage_in_bytes":    "3000\n",
		top + "d/memory.stat":              "inactive_file 1\ntotal_inactive_file 500\n",
		top + "d/e/memory.limit_in_bytes":  "9223372036854771712\n",
		top + "d/e/memory.usage_in_bytes":  "100\n",
		top + "d/e/memory.stat":            "total_inactive_file 50\n",
		top + "d/tight/memory.usage":       "",
		"sys/fs/cgroup/cpu/d/memory.limit": "1\n",
	}
	for membership, want := range map[string][2]int64{
		"5:cpu:/d\n4:memory:/d/e\n0::/\n": {2500, 4000},
		"4:hugetlb,memory:/d\n":           {2500, 4000},
		"4:memory:/\n":                    {Unknown, Unknown},
		"4:memory:/gone:with:colons\n":    {Unknown, Unknown},
		"4:cpu:/d\n":                      {Unknown, Unknown},
	} {
		mustBeAround(t, files, membership, want[0], want[1])
	}
}

// A container without a cgroup namespace sees its own cgroup mounted, and paths from the machine's root; one whose hierarchy
// was mounted by somebody above sees what lies above its root.
func TestPathsCountFromTheRootOfTheNamespace(t *testing.T) {
	const bound = "35 31 0:32 /docker/12\\04034 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	const above = "30 23 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	inside := map[string]string{
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
		"sys/fs/cgroup/sibling/memory.max": "6000\n", "sys/fs/cgroup/sibling/memory.current": "10\n",
	}
	for _, c := range []struct {
		mounts, membership string
		used, limit        int64
	}{
		{bound, "4:memory:/docker/12 34\n", 1000, 4000},
		{bound, "4:memory:/docker/12 34/sub\n", 1000, 4000},
		{bound, "4:memory:/docker/56\n", Unknown, Unknown},
		{bound, "4:memory:/\n", Unknown, Unknown},
		{above, "0::/../sibling\n", 10, 6000},
		{above, "0::/../../sibling\n", Unknown, Unknown},
		{above, "0::/\n", Unknown, Unknown},
	} {
		inside["proc/self/mountinfo"] = c.mounts
		mustBeAround(t, inside, c.membership, c.used, c.limit)
	}
}

func TestBothHierarchiesAreLookedAt(t *testing.T) {
	files := map[string]string{
		"proc/self/mountinfo":        mounts1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" + "broken\n - \n",
		"sys/fs/cgroup/memory/m/x":   "",
		"sys/fs/cgroup/unified/m/x":  "",
		"sys/fs/cgroup/memory/m/y/x": "",
	}
	mustBeAround(t, files, "4:memory:/m/y\n0::/m\n", Unknown, Unknown)
	files["sys/fs/cgroup/memory/m/memory.limit_in_bytes"] = "500"
	files["sys/fs/cgroup/memory/m/memory.usage_in_bytes"] = "400"
	mustBeAround(t, files, "4:memory:/m/y\n0::/m\n", 400, 500)
	files["sys/fs/cgroup/unified/m/memory.max"] = "50"
	files["sys/fs/cgroup/unified/m/memory.current"] = "40"
	mustBeAround(t, files, "4:memory:/m/y\n0::/m\n", 40, 50)
}

func mustBeAround(t *testing.T, files map[string]string, membership string, used, limit int64) {
	t.Helper()
	files["proc/meminfo"] = meminfo
	got := findSurroundings(fakeRoot(t, files)).around([]byte(membership))
	got.CgroupCache = 0
	want := growth.Around{Available: 2048 << 10, SwapFree: 512 << 10, CgroupUsed: used, CgroupLimit: limit}
	if got != want {
		t.Errorf("%q: %+v, want %+v", membership, got, want)
	}
}

// Shared memory is page cache to the kernel, and cannot be dropped.
func TestPageCacheIsToldWithoutSharedMemory(t *testing.T) {
	for _, c := range []struct {
		stat string
		want int64
	}{
		{"anon 1\nfile 900\nshmem 200\ninactive_file 30\n", 700},
		{"file 900\nshmem 0\n", 900},
		{"file 900\n", Unknown},
		{"shmem 900\n", Unknown},
		{"file 100\nshmem 900\n", Unknown},
		{"file -1\nshmem -1\n", Unknown},
		{"file 900\nshmem many\n", Unknown},
		{"", Unknown},
	} {
		files := map[string]string{
			"proc/self/mountinfo": mounts2, "proc/meminfo": meminfo,
			"sys/fs/cgroup/m/memory.max": "5000", "sys/fs/cgroup/m/memory.current": "4000", "sys/fs/cgroup/m/memory.stat": c.stat,
		}
		if got := findSurroundings(fakeRoot(t, files)).around([]byte("0::/m\n")).CgroupCache; got != c.want {
			t.Errorf("%q: cache of %d bytes, want %d", c.stat, got, c.want)
		}
	}
	files := map[string]string{
		"proc/self/mountinfo": mounts1, "proc/meminfo": meminfo,
		"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "5000", "sys/fs/cgroup/memory/m/memory.usage_in_bytes": "4000",
		"sys/fs/cgroup/memory/m/memory.stat": "cache 1\nshmem 1\ntotal_cache 800\ntotal_shmem 100\n",
	}
	if got := findSurroundings(fakeRoot(t, files)).around([]byte("4:memory:/m\n")).CgroupCache; got != 700 {
		t.Errorf("version 1: cache of %d bytes, want 700", got)
	}
}

func TestWhereNothingCanBeReadNothingIsKnown(t *testing.T) {
	want := growth.Around{Available: Unknown, SwapFree: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown, CgroupCache: Unknown}
	if got := findSurroundings(t.TempDir()).around([]byte("0::/\n")); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func FuzzHierarchies(f *testing.F) {
	f.Add(readFile(f, "/proc/self/mountinfo"), "/a/b")
	f.Add([]byte(mounts2), "/../x")
	f.Fuzz(func(t *testing.T, raw []byte, cgroup string) {
		for _, h := range parseMounts(raw) {
			if path, ok := h.folder(cgroup); ok && (slices.Contains(path, "..") || slices.Contains(path, "")) {
				t.Errorf("%q in %+v leads to %q", cgroup, h, path)
			}
		}
	})
}
