package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestRenderGPU(t *testing.T) {
	t.Run("all facts", testGPUFacts)
	t.Run("key", testGPUKey)
	t.Run("no GPU", testNoGPU)
	t.Run("unknown sizes", testUnknownSizes)
	t.Run("two verdicts", testTwoVerdicts)
}

const gib = 1 << 30

// onGPU is a state that leaks on a GPU, too.
func onGPU() *State {
	s := leaking()
	s.GPU = &GPU{
		Used: 31 * gib, Reserved: 29 * gib, Allocated: 27 * gib, DriverAPI: 30 * gib,
		Total: 80 * gib, Headroom: 49 * gib,
		Diagnosis: "allocated and reserved grow together: tensors are retained",
		Suspect:   "most by train.py: remember (train.py:19)",
		Verdict: &summary.Verdict{
			Class: verdict.ClassLeak, WhyCode: "steady growth after warm-up",
			Rate: new(3072.0 * (1 << 20)), RateLow: new(3050.0 * (1 << 20)),
			RateHigh: new(3100.0 * (1 << 20)),
			ToLimit:  new(1000.0), ToLimitLow: new(990.0),
			ToLimitHigh: new(1010.0),
		},
	}

	for second := range 200 {
		s.GPU.Curve = s.GPU.Curve.With(time.Duration(second)*time.Second,
			int64(20*gib+second*(55<<20)))
	}

	for i := range 7 {
		s.GPU.Stacks = append(s.GPU.Stacks, Stack{
			Component: "train.py", BytesPerMin: new(int64(700-100*i) << 20),
			Bytes: int64(7-i) * gib, Objects: 100,
			Where: []string{
				fmt.Sprintf("[cuda-block] remember%d (train.py:19) < main (train.py:40)", i),
				fmt.Sprintf("[cuda-block] remember%d (train.py:19)", i),
				fmt.Sprintf("remember%d:19", i),
			},
		})
	}

	return s
}

func testGPUFacts(t *testing.T) {
	for _, ui := range sizes[:2] {
		text := Render(onGPU(), ui)
		mustFit(t, text, ui)
		mustShow(t, text, "RSS 1.00 GiB", "GPU memory used 31.0 GiB of 80.0 GiB",
			"min 20.0 GiB, max 30.7 GiB",
			" reserved 29.0 GiB · allocated 27.0 GiB · headroom 49.0 GiB",
			"So far: LEAK: +240.0 MiB/min", "GPU so far: LEAK: +3072 MiB/min",
			"g GPU", "Stacks by rate", "What the growth of RSS is made of", "12.3 k events/s",
			"? help")
	}

	mustShow(t, Render(onGPU(), sizes[1]), "CUDA driver API 30.0 GiB", "tensors are retained",
		"most by train.py: remember (train.py:19)")
	mustFit(t, Render(onGPU(), sizes[2]), sizes[2])
}

func testGPUKey(t *testing.T) {
	m := watched().model
	before := pressed(m, "g")
	if before.ui.ShowGPU {
		t.Error("there is a switch without GPU memory")
	}

	m = pressed(updated(m, stateMsg{onGPU()}), "down", "g")
	mustShow(t, m.View().Content, "GPU stacks by rate", "remember0", "g host", "700.00", "1 to ")
	if strings.Contains(m.View().Content, "resize0") {
		t.Errorf("shows those of the host, too:\n%s", ansi.Strip(m.View().Content))
	}

	mustShow(t, pressed(m, "end").View().Content, "remember6", "of 7")
	mustShow(t, pressed(m, "g").View().Content, "Stacks by rate", "resize0", "g GPU")
	m = updated(m, stateMsg{leaking()}) // another process, which has none
	mustShow(t, m.View().Content, "Stacks by rate", "resize0")
}

func testNoGPU(t *testing.T) {
	for _, ui := range sizes {
		for _, ui.Help = range []bool{false, true} {
			plain := Render(leaking(), ui)
			ui.ShowGPU = true
			if got := Render(leaking(), ui); got != plain {
				t.Errorf("it changes:\n%s", ansi.Strip(got))
			}

			if text := ansi.Strip(plain); strings.Contains(text, "GPU") || strings.Contains(text,
				" g ") {
				t.Errorf("it speaks of devices:\n%s", text)
			}

			ui.ShowGPU = false
		}
	}
}

func testUnknownSizes(t *testing.T) {
	const no = -1
	for want, sizes := range map[string][5]int64{ // used, reserved, allocated, by the driver API, total
		"GPU memory unknown":                    {no, no, no, no, no},
		"CUDA driver API 3.00 GiB ":             {no, no, no, 3 * gib, no},
		"GPU memory reserved 2.00 GiB ":         {no, 2 * gib, gib, 3 * gib, no},
		" allocated 1.00 GiB · CUDA driver API": {no, 2 * gib, gib, 3 * gib, no},
		"used 4.00 GiB of 8.00 GiB ":            {4 * gib, 2 * gib, no, no, 8 * gib},
	} {
		s := leaking()
		s.GPU = &GPU{
			Used: sizes[0], Reserved: sizes[1], Allocated: sizes[2], DriverAPI: sizes[3],
			Total: sizes[4], Headroom: no,
		}
		ui := UIState{Width: 80, Height: 24}
		text := Render(s, ui)
		mustFit(t, text, ui)
		mustShow(t, text, want)
		if strings.Contains(text, "-1 B") || strings.Contains(text, "GPU so far") {
			t.Errorf("says unknown sizes:\n%s", ansi.Strip(text))
		}
	}
}

// Neither of two verdicts pushes the other out.
func testTwoVerdicts(t *testing.T) {
	a, b := []string{"a1", "a2", "a3"}, []string{"b1", "b2", "b3"}
	for height, want := range []string{
		"", "a1", "a1 b1", "a1 a2 b1", "a1 a2 b1 b2",
		"a1 a2 a3 b1 b2", "a1 a2 a3 b1 b2 b3", "a1 a2 a3 b1 b2 b3",
	} {
		if got := strings.Join(shareLines(a, b, height), " "); got != want {
			t.Errorf("in %d lines %q, want %q", height, got, want)
		}
	}

	if got := shareLines(a, b[:1], 4); !slices.Equal(got, []string{"a1", "a2", "a3", "b1"}) {
		t.Errorf("%q", got)
	}
	if got := shareLines(a[:1], b, 4); !slices.Equal(got, []string{"a1", "b1", "b2", "b3"}) {
		t.Errorf("%q", got)
	}
}
