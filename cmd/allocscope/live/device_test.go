package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

const gib = 1 << 30

// onDevice is leaking on a GPU, too.
func onDevice() *State {
	s := leaking()
	s.Device = &Device{
		Used: 31 * gib, Reserved: 29 * gib, Allocated: 27 * gib, Called: 30 * gib, Total: 80 * gib, Room: 49 * gib,
		Diagnosis: "allocated and reserved grow together: tensors are retained", Blame: "train.py: remember (train.py:19)",
		Verdict: &summary.Verdict{
			Class: growth.ClassLeak, Why: "steady growth after warm-up", RateBytesPerMin: known(3072.0 * (1 << 20)), RateLow: known(3050.0 * (1 << 20)), RateHigh: known(3100.0 * (1 << 20)),
			SecondsToLimit: known(1000.0), SecondsToLimitLow: known(990.0), SecondsToLimitHigh: known(1010.0),
		},
	}
	for second := range 200 {
		s.Device.Trail = s.Device.Trail.With(time.Duration(second)*time.Second, int64(20*gib+second*(55<<20)))
	}
	for i := range 7 {
		s.Device.Stacks = append(s.Device.Stacks, Stack{
			Owner: "train.py", BytesPerMin: known(int64(700-100*i) << 20), Bytes: int64(7-i) * gib, Objects: 100,
			Where: []string{fmt.Sprintf("[cuda_block] remember%d (train.py:19) < main (train.py:40)", i), fmt.Sprintf("[cuda_block] remember%d (train.py:19)", i), fmt.Sprintf("remember%d:19", i)},
		})
	}
	return s
}

func TestDeviceMemoryHasItsCurveItsFactsAndItsVerdict(t *testing.T) {
	for _, look := range sizes[:2] {
		text := Render(onDevice(), look)
		mustFit(t, text, look)
		mustShow(t, text, "RSS 1.00 GiB", "Device memory used 31.0 GiB of 80.0 GiB", "min 20.0 GiB, max 30.7 GiB", " reserved 29.0 GiB · allocated 27.0 GiB · room 49.0 GiB",
			"So far: LEAK: grows by 240.0 MiB/min", "Device so far: LEAK: grows by 3072 MiB/min", "g device", "Stacks by rate", "Where the growth of RSS is", "12.3 k events/s", "? help")
	}
	mustShow(t, Render(onDevice(), sizes[1]), "through the driver's API 30.0 GiB", "tensors are retained", "most by train.py: remember (train.py:19)", "the GPU is full in 16 to 17 min")
	mustFit(t, Render(onDevice(), sizes[2]), sizes[2])
}

func TestTheKeyForDeviceMemoryTurnsTheStacks(t *testing.T) {
	m := watched().model
	before := pressed(m, "g")
	if before.look.Device {
		t.Error("there is a switch without device memory")
	}
	next, _ := m.Update(stateMsg{onDevice()})
	m = pressed(next.(model), "down", "g")
	mustShow(t, m.View().Content, "Device stacks by rate", "remember0", "g host", "700.00", "1 to ")
	if strings.Contains(m.View().Content, "resize") {
		t.Errorf("shows those of the host, too:\n%s", ansi.Strip(m.View().Content))
	}
	mustShow(t, pressed(m, "end").View().Content, "remember6", "of 7")
	mustShow(t, pressed(m, "g").View().Content, "Stacks by rate", "resize0", "g device")
	mustShow(t, pressed(m, "?").View().Content, "g           show the stacks that hold device memory")
	next, _ = m.Update(stateMsg{leaking()}) // another process, which has none
	mustShow(t, next.(model).View().Content, "Stacks by rate", "resize0")
}

func TestWithoutDeviceMemoryTheScreenIsAsBefore(t *testing.T) {
	for _, look := range sizes {
		for _, look.Help = range []bool{false, true} {
			plain := Render(leaking(), look)
			look.Device = true
			if got := Render(leaking(), look); got != plain {
				t.Errorf("it changes:\n%s", ansi.Strip(got))
			}
			if text := ansi.Strip(plain); strings.Contains(strings.ToLower(text), "device") || strings.Contains(text, " g ") {
				t.Errorf("it speaks of devices:\n%s", text)
			}
			look.Device = false
		}
	}
}

func TestWhatIsNotKnownOfADeviceIsNotSaid(t *testing.T) {
	nothing := Device{Used: -1, Reserved: -1, Allocated: -1, Called: -1, Total: -1, Room: -1}
	for want, edit := range map[string]func(*Device){
		"Device memory not known":                        func(*Device) {},
		"through the driver's API 3.00 GiB ":             func(d *Device) { d.Called = 3 * gib },
		"Device memory reserved 2.00 GiB ":               func(d *Device) { d.Reserved, d.Allocated, d.Called = 2*gib, gib, 3*gib },
		" allocated 1.00 GiB · through the driver's API": func(d *Device) { d.Reserved, d.Allocated, d.Called = 2*gib, gib, 3*gib },
		"used 4.00 GiB of 8.00 GiB ":                     func(d *Device) { d.Used, d.Reserved, d.Total = 4*gib, 2*gib, 8*gib },
	} {
		d := nothing
		edit(&d)
		s := leaking()
		s.Device = &d
		text := Render(s, sizes[0])
		mustFit(t, text, sizes[0])
		mustShow(t, text, want)
		if strings.Contains(text, "-1 B") || strings.Contains(text, "Device so far") {
			t.Errorf("says what nobody knows:\n%s", ansi.Strip(text))
		}
	}
}

func TestHostileTextsOfADeviceTakeTheCellsThatTheySeemTo(t *testing.T) {
	for _, text := range hostile {
		for _, look := range sizes {
			for _, look.Device = range []bool{false, true} {
				state := onDevice()
				state.Device.Diagnosis, state.Device.Blame, state.Device.Verdict.Why = text, text, text
				for i := range state.Device.Stacks {
					state.Device.Stacks[i].Owner, state.Device.Stacks[i].Where = text, []string{text, text}
				}
				drawn := Render(state, look)
				mustFit(t, drawn, look)
				mustBeHarmless(t, drawn)
			}
		}
	}
}

func TestEverySizeIsDrawnWithDeviceMemory(t *testing.T) {
	for width := 0; width < 220; width += 7 {
		for height := 1; height < 70; height += 3 {
			for _, state := range []*State{onDevice(), {RSS: -1, Steps: -1, Device: &Device{}}} {
				look := Look{Width: width, Height: height, Scroll: 1 << 30, Log: []string{"x"}, Device: height%2 == 0, Help: height%7 == 0}
				mustFit(t, Render(state, look), look)
			}
		}
	}
}

// Neither of two verdicts pushes the other out.
func TestTwoVerdictsShareTheLinesThatThereAre(t *testing.T) {
	a, b := []string{"a1", "a2", "a3"}, []string{"b1", "b2", "b3"}
	for height, want := range []string{"", "a1", "a1 b1", "a1 a2 b1", "a1 a2 b1 b2", "a1 a2 a3 b1 b2", "a1 a2 a3 b1 b2 b3", "a1 a2 a3 b1 b2 b3"} {
		if got := strings.Join(shared(a, b, height), " "); got != want {
			t.Errorf("in %d lines %q, want %q", height, got, want)
		}
	}
	if got := shared(a, b[:1], 4); !slices.Equal(got, []string{"a1", "a2", "a3", "b1"}) {
		t.Errorf("%q", got)
	}
	if got := shared(a[:1], b, 4); !slices.Equal(got, []string{"a1", "b1", "b2", "b3"}) {
		t.Errorf("%q", got)
	}
}
