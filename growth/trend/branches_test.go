package trend

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/growthtest"
)

func inProgram(function string) growth.Frame {
	return growthtest.NativeFrame(function, "/app/nist")
}

// TestSpread has growth over many call sites, with their common callers.
func TestSpread(t *testing.T) {
	main := inProgram("main")
	start := growthtest.NativeFrame("__libc_start_main", "/lib/x86_64-linux-gnu/libc.so.6")
	sites := func(n int, above ...growth.Frame) (trends []StackTrend) {
		for i := range n {
			frames := append([]growth.Frame{mallocFrame, inProgram(fmt.Sprint("bad_", i))}, above...)
			trends = append(trends, growingStack(10+float64(i%7), frames...))
		}
		return trends
	}

	t.Run("below main", func(t *testing.T) {
		got := onlySuspect(t, sites(150, main, start))
		if got.Sites != 150 || got.Frame.Function != "bad_6" || got.Common.Function != "main" ||
			got.Stacks != 150 || got.Growth != growthOfTrends(sites(150)) || got.Inclusive > 0.02 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("lines of Python", func(t *testing.T) {
		var trends []StackTrend
		for i := range 30 {
			trends = append(trends, growingStack(10, mallocFrame, scriptLine("load", 100+i), mainLine))
		}
		got := onlySuspect(t, trends)
		if got.Sites != 30 || got.Common.Function != "load" || got.Common.Line != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("few sites are not spread", func(t *testing.T) {
		got := onlySuspect(t, sites(8, inProgram("run_all"), main, start))
		if got.Sites != 0 || got.Frame.Function != "run_all" || got.Inclusive != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("besides a large one", func(t *testing.T) {
		large := growingStack(900, mallocFrame, inProgram("cache"), main, start)
		got := Suspects(numbered(append(sites(100, main, start), large)), nil)
		if len(got) != 2 || got[0].Sites != 100 || got[1].Frame.Function != "cache" ||
			got[1].Sites != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func growthOfTrends(trends []StackTrend) (total float64) {
	for _, t := range trends {
		total += t.Growth
	}
	return total
}

// TestOwnCode names the program's own function nearest to the leaf, and no wrapper, no library and
// no address in its place.
func TestOwnCode(t *testing.T) {
	redis := func(function string) growth.Frame {
		return growthtest.NativeFrame(function, "/usr/bin/redis-server")
	}
	libc := growthtest.NativeFrame("__libc_start_call_main", "/lib/x86_64-linux-gnu/libc.so.6")
	postgres := func(function string) growth.Frame {
		return growthtest.NativeFrame(function, "/usr/lib/postgresql/15/bin/postgres")
	}
	libz := func(function string) growth.Frame {
		return growthtest.NativeFrame(function, "/usr/lib/x86_64-linux-gnu/libz.so.1")
	}

	for want, frames := range map[string][]growth.Frame{
		"createStringObject": {
			mallocFrame, redis("ztrymalloc_usable_internal"), redis("zmalloc_usable"),
			redis("createStringObject"), redis("processInputBuffer"), redis("main"), libc,
		},
		"PrepareQuery": {
			mallocFrame, postgres("AllocSetAlloc"), postgres("postgres+0x5c7860"),
			postgres("PrepareQuery"), postgres("PostgresMain"), libc,
		},
		"compress_page": {
			mallocFrame, libz("deflateInit2_"), inProgram("compress_page"), inProgram("main"), libc,
		},
		"deflateInit2_": {
			mallocFrame, libz("zcalloc"), libz("libz.so.1+0x123"), libz("deflateInit2_"),
			libz("libz.so.1+0x99"), libc,
		},
		"libz.so.1+0x123": {mallocFrame, libz("libz.so.1+0x123"), libz("libz.so.1+0x99"), libc},
		"main":            {mallocFrame, inProgram("nist+0x10"), inProgram("main"), libc},
		"xmalloc":         {mallocFrame, inProgram("xmalloc")},
		"load": {
			mallocFrame, inProgram("session_register"),
			growthtest.NativeFrame("ffi_call", "/usr/lib/x86_64-linux-gnu/libffi.so.8"),
			scriptLine("load", 5), mainLine,
		},
	} {
		got := onlySuspect(t, []StackTrend{growingStack(10, frames...)})
		if got.Frame.Function != want {
			t.Errorf("%s, want %s", got.Frame.Function, want)
		}
	}
}

// A function without such a name is a wrapper where many callers use it and few of them grow. One
// that all callers leak through is the leak's own.
func TestWrapperByCallers(t *testing.T) {
	main := inProgram("main")
	program := func(growing int) (trends []StackTrend) {
		for i := range 12 {
			s := growingStack(10, mallocFrame, inProgram("get_room"), inProgram(fmt.Sprint("work_", i)),
				inProgram("serve"), main)
			if i >= growing {
				s.Trend, s.Growth = growth.TrendNoGrowth, 0
			}
			trends = append(trends, s)
		}
		return trends
	}
	if got := onlySuspect(t, program(1)); got.Frame.Function != "work_0" {
		t.Errorf("one of twelve grows: %s", got.Frame.Function)
	}
	if got := onlySuspect(t, program(12)); got.Frame.Function != "get_room" {
		t.Errorf("all grow: %s", got.Frame.Function)
	}

	also := append(program(1), growingStack(10, mallocFrame, inProgram("helper"),
		inProgram("get_room"), inProgram("work_0"), main))
	if got := onlySuspect(t, also); got.Frame.Function != "get_room" {
		t.Errorf("it calls others, too: %s", got.Frame.Function)
	}

	layers := program(1)[:7]
	for i, s := range layers { // the inner one has one caller
		frames := slices.Insert(slices.Clone(s.Stack.Frames), 1, inProgram("carve"))
		layers[i].Stack = &growth.Stack{ID: s.Stack.ID, PID: s.Stack.PID, Frames: frames}
	}
	if got := onlySuspect(t, layers); got.Frame.Function != "work_0" {
		t.Errorf("of two layers: %s", got.Frame.Function)
	}
	if got := onlySuspect(t, layers[:4]); got.Frame.Function != "carve" {
		t.Errorf("of four callers: %s", got.Frame.Function)
	}
}
