package spike

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	mib   = 1 << 20
	usual = 2000 * mib
)

// A shape is the RSS of a process in MiB above the usual, at a second.
type shape func(second int, random *rand.Rand) float64

// spikesOf are so high for so long, every so many seconds.
func spikesOf(height float64, length, every int) shape {
	return func(second int, _ *rand.Rand) float64 {
		if second%every >= every-length {
			return height
		}
		return 0
	}
}

func sum(shapes ...shape) shape {
	return func(second int, random *rand.Rand) (all float64) {
		for _, s := range shapes {
			all += s(second, random)
		}
		return all
	}
}

func noise(width float64) shape {
	return func(_ int, random *rand.Rand) float64 { return width * random.NormFloat64() }
}

func ramp(perSecond float64) shape {
	return func(second int, _ *rand.Rand) float64 { return perSecond * float64(second) }
}

func step(height float64, at int) shape {
	return func(second int, _ *rand.Rand) float64 {
		if second >= at {
			return height
		}
		return 0
	}
}

// buildsUp rises in a line in each period, and falls at its end.
func buildsUp(height float64, length, every int) shape {
	return func(second int, _ *rand.Rand) float64 {
		return height * max(0, float64(second%every-(every-length)+1)/float64(length))
	}
}

// saturates is a warm-up that takes so many seconds.
func saturates(height, seconds float64) shape {
	return func(second int, _ *rand.Rand) float64 {
		return height * (1 - 1/(1+float64(second)/seconds))
	}
}

func TestDetector(t *testing.T) {
	for _, c := range []struct {
		name   string
		of     shape
		spikes int
		begun  int // at most, spikes included
	}{
		{"flat", noise(0), 0, 0},
		{"noise", noise(30), 0, 0},
		{"jitter of each step", func(_ int, r *rand.Rand) float64 { return 300 * r.Float64() }, 0, 0},
		{"spikes of 5 s", spikesOf(400, 5, 60), 15, 15},
		{"spikes of 1 s", spikesOf(400, 1, 30), 30, 30},
		{"spikes of 45 s in 3 min", spikesOf(1000, 45, 180), 5, 5},
		{"spikes in noise", sum(spikesOf(400, 5, 60), noise(15)), 15, 15},
		{"spikes on a leak", sum(spikesOf(400, 5, 60), ramp(0.5)), 15, 15},
		{"spikes that build up", buildsUp(900, 20, 90), 10, 10},
		{"too low", spikesOf(60, 5, 60), 0, 0},
		{"steady growth", ramp(1), 0, 0},
		{"fast growth", ramp(20), 0, 0},
		{"warm-up", saturates(4000, 60), 0, 1},
		{"step that stays", step(500, 300), 0, 1},
		{"two steps, up and down", sum(step(500, 200), step(-500, 500)), 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				begun, ended := detect(c.of, seed)
				if ended != c.spikes || begun > c.begun {
					t.Errorf("seed %d: %d spikes of %d beginnings, want %d of %d at most", seed,
						ended,
						begun, c.spikes, c.begun)
				}
			}
		})
	}
}

// Spikes that take much of the time, the first of them before spikes can be known, are found soon.
func TestFrequentSpikes(t *testing.T) {
	for offset := range 12 {
		early := func(second int, r *rand.Rand) float64 { return spikesOf(400, 5, 12)(second+offset, r) }
		if _, ended := detect(early, 0); ended < 72 {
			t.Errorf("offset %d: %d spikes, want most of 75", offset, ended)
		}
	}
}

// detect counts the beginnings and the ends of spikes in fifteen minutes.
func detect(of shape, seed uint64) (begun, ended int) {
	var d Detector
	random := rand.New(rand.NewPCG(seed, 0))
	for second := range 900 {
		rss := usual + int64(of(second, random)*mib)
		switch d.Add(time.Duration(second)*time.Second, rss) {
		case Begun:
			begun++
		case Ended:
			ended++
		}
	}

	if d.InSpike() && d.length < minLongest {
		ended++ // the last one, at the very end
	}
	return begun, ended
}

func TestPeriod(t *testing.T) {
	seconds := func(all ...int) (moments []time.Duration) {
		for _, s := range all {
			moments = append(moments, time.Duration(s)*time.Second)
		}
		return moments
	}
	for _, c := range []struct {
		name    string
		moments []time.Duration
		want    time.Duration
	}{
		{"two", seconds(0, 60), 0},
		{"regular", seconds(3, 63, 124, 184), time.Minute},
		{"irregular", seconds(3, 63, 184, 190), 0},
	} {
		if got := periodOf(c.moments); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
