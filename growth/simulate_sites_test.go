package growth

import (
	"math"
	"math/rand/v2"
)

func constantly(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

func forever(*rand.Rand, float64) float64 { return math.Inf(1) }

// exponential lives of a mean length in seconds.
func exponential(life float64) func(*rand.Rand, float64) float64 {
	return func(random *rand.Rand, _ float64) float64 { return random.ExpFloat64() * life }
}

// bursts of a rate: all of it comes in a part of each period.
func bursts(rate, period, part, phase float64) func(float64) float64 {
	return func(at float64) float64 {
		if math.Mod(at/period+phase, 1) < part {
			return rate / part
		}
		return 0
	}
}

// leakingSites keep all that they allocate, or a part of it.
func leakingSites(random *rand.Rand, rate float64) []simulatedSite {
	size := logUniform(random, 200, 64<<10)
	each := rate
	leak := func(name string, rate func(float64) float64) simulatedSite {
		return simulatedSite{name: name, leaks: true, size: size, rate: rate, life: forever, held: func(at float64) float64 { return each * at }}
	}
	mixed := simulatedSite{name: "leak of 2 % of churn", leaks: true, size: size, rate: constantly(50 * rate), retaken: 0.25, held: func(at float64) float64 { return rate * at }}
	mixed.life = func(random *rand.Rand, _ float64) float64 {
		if random.Float64() < 0.02 {
			return math.Inf(1)
		}
		return random.ExpFloat64() * 20
	}
	return []simulatedSite{
		leak("leak", constantly(rate)),
		leak("leak in steps of 0.3 s", bursts(rate, 0.3, 0.1, random.Float64())),
		leak("leak in bursts of 2 s each 20 s", bursts(rate, 20, 0.1, random.Float64())),
		mixed,
	}
}

// steadySites hold the same at all times from before the trace on, but for the cache that fills.
func steadySites(random *rand.Rand, rate float64) []simulatedSite {
	var sites []simulatedSite
	add := func(name string, size float64, life func(*rand.Rand, float64) float64, retaken float64) {
		sites = append(sites, simulatedSite{name: name, size: size, rate: constantly(rate), life: life, retaken: retaken, held: constantly(0)})
	}
	size := func() float64 { return logUniform(random, 200, 64<<10) }
	add("churn", size(), exponential(logUniform(random, 1, 100)), 0.25)
	for _, life := range []float64{120, 300, 600, 1800} {
		kept := life
		add("cache of "+(map[float64]string{120: "2", 300: "5", 600: "10", 1800: "30"})[life]+" min", size(),
			func(*rand.Rand, float64) float64 { return kept }, 0.25)
	}
	// The worst case: one size, each place taken at once by the next of the site.
	for _, life := range []float64{10, 60, 300} {
		add("LRU of one size, "+(map[float64]string{10: "10 s", 60: "1 min", 300: "5 min"})[life], size(), exponential(life), 1)
	}
	epoch, phase := logUniform(random, 100, 1000), random.Float64()
	add("epoch refill", size(), func(_ *rand.Rand, birth float64) float64 {
		return (math.Floor(birth/epoch+phase)+1-phase)*epoch - birth
	}, 0.25)
	full := simulatedFrom + (0.05+0.4*random.Float64())*(simulatedTo-simulatedFrom)
	fills := func(at float64) float64 {
		if at < full {
			return rate
		}
		return 0
	}
	return append(sites, simulatedSite{name: "cache that fills", size: size(), rate: fills, life: forever, held: func(at float64) float64 { return rate * min(at, full) }})
}
