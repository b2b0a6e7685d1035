package conclude

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

func native(function, file string) growth.Frame {
	return growth.Frame{Function: function, Module: &growth.Module{Path: file}}
}

// The code of C on a stack, leaf first, is the function that Python calls, or that calls Python.
func TestTakerOn(t *testing.T) {
	const imaging = "/usr/lib/python3/dist-packages/PIL/_imaging.cpython-311-x86_64-linux-gnu.so"
	const ctypes = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
	const own, libffi = "/opt/app/own.so", "/lib/libffi.so.8"
	numpy := native("long_int", "/x/site-packages/numpy/core/_multiarray_umath.abi3.so")
	getpixel := native("_getpixel", imaging)
	python := growth.Frame{Function: "Image.getpixel", File: "Image.py", Python: true}
	main := native("main", "/usr/bin/python3.11")

	for name, c := range map[string]struct {
		frames []growth.Frame
		want   verdict.Taker
	}{
		"made by another library": {
			[]growth.Frame{numpy, getpixel, python, main},
			verdict.Taker{Library: "PIL._imaging", Function: "_getpixel", Caller: "Image.getpixel"},
		},
		"without a symbol": {
			[]growth.Frame{native("_imaging.so+0x12", imaging), python},
			verdict.Taker{Library: "PIL._imaging", Caller: "Image.getpixel"},
		},
		"made by Python": {
			[]growth.Frame{python, native("callback", ctypes), python},
			verdict.Taker{Library: "_ctypes", Function: "callback", CallsPython: true},
		},
		"called by ctypes": {
			[]growth.Frame{
				native("grow", own), native("take", own), native("ffi_call", libffi),
				native("_ctypes_callproc", ctypes), python,
			},
			verdict.Taker{Library: "own.so", Function: "take", Caller: "Image.getpixel"},
		},
		"made by ctypes": {
			[]growth.Frame{native("PyCData_FromBaseObj", ctypes), python},
			verdict.Taker{
				Library: "_ctypes", Function: "PyCData_FromBaseObj", Caller: "Image.getpixel",
			},
		},
		"made by a callback of ctypes": {
			[]growth.Frame{
				python, native("closure_fcn", ctypes), native("ffi_closure", libffi),
				native("each", own), native("ffi_call", libffi), python,
			},
			verdict.Taker{Library: "own.so", Function: "each", CallsPython: true},
		},
		"Python alone": {[]growth.Frame{python, main}, verdict.Taker{}},
		"C alone": {
			[]growth.Frame{native("parse", "/opt/app/libparse.so.2"), main},
			verdict.Taker{Library: "libparse.so.2", Function: "parse"},
		},
	} {
		if got := takerOn(c.frames); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The loss is the largest part of the growth, with its type where that is known; only a stack that
// allocates the very objects names a function.
func TestLostOf(t *testing.T) {
	const pid = 7
	history := &growth.ProcessHistory{
		Member: growth.Member{Process: growth.Process{PID: pid}}, Last: time.Hour, End: time.Hour,
	}
	stack := &growth.Stack{ID: 1, Frames: []growth.Frame{
		native("take", "/x/site-packages/lib/_c.so"), {Function: "f", File: "f.py", Python: true},
	}}
	p := &Process{History: history}
	p.Judged.Rate = 100
	p.Trends = []trend.StackTrend{{Stack: stack, Growth: 1000}}
	p.Suspects = []trend.Suspect{{StackIDs: []uint64{1}, Share: 0.9}}
	proof := keeper.Proof{Lost: 15, Of: 16, First: time.Second, Second: 21 * time.Second}
	ofStack := keeper.Search{PID: pid, Stack: 1, Elapsed: time.Minute, Proof: proof}
	ofType := keeper.Search{PID: pid, Type: "int", Elapsed: time.Minute, Proof: proof}
	counts := func(at time.Duration, bytes float64) *census.Result {
		return &census.Result{PID: pid, Elapsed: at, Share: 1, Types: []census.TypeCount{
			{Type: "int", Count: bytes / 32, Bytes: bytes},
			{Type: "dict", Count: bytes / 640, Bytes: bytes / 8},
		}}
	}
	ofOther := keeper.Search{PID: pid, Type: "dict", Elapsed: time.Minute, Proof: proof}
	trace := &Trace{Censuses: []*census.Result{counts(0, 0), counts(time.Minute, 4800)}}

	for name, c := range map[string]struct {
		searches []keeper.Search
		want     *verdict.Lost
	}{
		"nothing is proven": {[]keeper.Search{{PID: pid, Stack: 1, Elapsed: time.Minute}}, nil},
		"of a stack": {[]keeper.Search{ofStack}, &verdict.Lost{
			Samples: 15, Of: 16, Seconds: 20, Share: 0.9,
			Taker: verdict.Taker{Library: "lib._c", Function: "take", Caller: "f"},
		}},
		"of a type": {[]keeper.Search{ofType}, &verdict.Lost{
			Samples: 15, Of: 16, Seconds: 20, Share: 0.8, Type: "int",
			Taker: verdict.Taker{Library: "lib._c"},
		}},
		"of two types": {[]keeper.Search{ofType, ofOther}, &verdict.Lost{
			Samples: 15, Of: 16, Seconds: 20, Share: 0.9, Type: "int",
			Taker: verdict.Taker{Library: "lib._c"},
		}},
		"of both": {[]keeper.Search{ofStack, ofType}, &verdict.Lost{
			Samples: 15, Of: 16, Seconds: 20, Share: 0.8, Type: "int",
			Taker: verdict.Taker{Library: "lib._c", Function: "take", Caller: "f"},
		}},
	} {
		trace.Keepers = c.searches
		got := trace.lostOf(p)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
