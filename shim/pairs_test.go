package shim

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// BenchmarkPairs measures what a malloc/free pair costs, natively and in several ways of recording.
// All ways run side by side, by turns; each number is the median of the rounds.
func BenchmarkPairs(b *testing.B) {
	program := tracertest.Build(b, "pair.c", "-pthread")

	for _, threads := range []int{1, 8} {
		for _, size := range []int{16, 64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("threads=%d/size=%d", threads, size), func(b *testing.B) {
				b.ReportMetric(0, "ns/op") // leaves it out
				rounds := 15
				if threads > 1 {
					rounds = 5
				}
				count := min(200000, 1<<30/size)
				ways := waysOf(b, program, fmt.Sprint(count), fmt.Sprint(size), fmt.Sprint(threads))

				costs := make([][]float64, len(ways))
				for range rounds {
					for i, w := range ways {
						costs[i] = append(costs[i], w.measure(b))
					}
				}

				for i, w := range ways {
					w.target.Hangup()
					slices.Sort(costs[i])
					b.ReportMetric(costs[i][rounds/2], w.name+"-ns")
				}
			})
		}
	}
}

// A way is a program that measures pairs, and how they are recorded.
type way struct {
	name   string
	target *tracertest.Target
}

func waysOf(b *testing.B, program string, arguments ...string) (ways []way) {
	add := func(name string, command *exec.Cmd) {
		target := tracertest.StartCommand(b, command)
		target.Await("ready")
		ways = append(ways, way{name, target})
	}

	add("native", exec.Command(program, arguments...))
	add("idle", newIdle(b).command("", program, arguments...))
	for _, c := range []struct {
		name    string
		markers int
	}{{"sampled-512KiB", 12}, {"sampled-16KiB", 17}} {
		r := newIdle(b)
		r.probe(AllocProbe, r.nothing)
		r.probe(FreeProbe, r.nothing)
		r.mark(c.markers)
		add(c.name, r.command("", program, arguments...))
	}

	for _, c := range []struct{ name, conf string }{
		{"jemalloc", "prof:false"}, {"jemalloc-prof", "prof:true,lg_prof_sample:19"},
	} {
		command := exec.Command(program, arguments...)
		command.Env = append(os.Environ(), "LD_PRELOAD=libjemalloc.so.2", "MALLOC_CONF="+c.conf)
		add(c.name, command)
	}
	if path, err := exec.LookPath("heaptrack"); err == nil {
		command := exec.Command(path, append([]string{program}, arguments...)...)
		command.Dir = b.TempDir()
		add("heaptrack", command)
	}
	return ways
}

func (w way) measure(b *testing.B) float64 {
	w.target.Say("go")
	for _, line := range w.target.Await("done") {
		if cost, err := strconv.ParseFloat(line, 64); err == nil {
			return cost
		}
	}
	b.Fatalf("%s printed no cost", w.name)
	return 0
}

// BenchmarkStarts measures the CPU time of a program that does nothing, from fork to its end: without
// the library, with it, and with all probes and 20 markers attached.
func BenchmarkStarts(b *testing.B) {
	const rounds = 300
	b.ReportMetric(0, "ns/op") // leaves it out
	idle, attached := newIdle(b), newIdle(b)
	for _, name := range []string{AllocProbe, FreeProbe, StartProbe} {
		attached.probe(name, attached.nothing)
	}
	attached.mark(20)

	costs := make(map[string][]float64)
	for range rounds {
		for name, command := range map[string]*exec.Cmd{
			"native": exec.Command("true"), "idle": idle.command("", "true"),
			"sampled": attached.command("", "true"),
		} {
			tracertest.NoError(b, command.Run())
			state := command.ProcessState
			costs[name] = append(costs[name], float64(state.UserTime()+state.SystemTime())/1e3)
		}
	}

	for name, all := range costs {
		slices.Sort(all)
		b.ReportMetric(all[rounds/2], name+"-us")
	}
}
