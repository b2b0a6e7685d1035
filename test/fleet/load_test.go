package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	ranksOfNode = 8
	residentIn  = "memory:resident_space:bytes:space:bytes" // a type of profiles of Pyroscope
	framesDeep  = 20
)

var phases = []string{"baseline", "end", "growth"}

// unlimited lets a server take the profiles of thousands of ranks from one tenant.
var unlimited = []string{
	"-distributor.ingestion-rate-limit-mb=1000", "-distributor.ingestion-burst-size-mb=1000",
	"-ingester.max-global-series-per-tenant=0", "-querier.max-query-length=0",
}

// totals are bytes by phase and rank.
type totals map[string]map[string]float64

func newTotals() totals {
	t := make(totals)
	for _, phase := range phases {
		t[phase] = make(map[string]float64)
	}
	return t
}

// add adds the bytes of other ranks.
func (t totals) add(other totals) {
	for phase, of := range other {
		for rank, bytes := range of {
			t[phase][rank] += bytes
		}
	}
}

// A node is the folder of a trace of some ranks of a job, and its contents.
type node struct {
	*folder.Folder
	summary *summary.Summary
	totals  totals
}

// newNode makes the folder of a trace of the ranks from first on. Nine of ten of their stacks are
// common to all ranks, with sizes of their own.
func newNode(t *testing.T, job string, first, size, stacks int) node {
	t.Helper()
	f, err := folder.Create(filepath.Join(t.TempDir(), "out"),
		folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	tracertest.NoError(t, err)
	n := node{Folder: f, totals: newTotals(), summary: &summary.Summary{
		Started: time.Now().Add(-5 * time.Minute), DurationS: (5 * time.Minute).Seconds(),
		Process: summary.Process{PID: 1000},
	}}

	held := make(map[string][]growth.Holding)
	for i := range ranksOfNode {
		rank := first + i
		r := rand.New(rand.NewPCG(uint64(rank), 25))
		n.summary.Processes = append(n.summary.Processes, rankOf(job, rank, size, 1000+i))
		for s := range stacks {
			of := 0
			if s%10 == 0 {
				of = rank + 1
			}
			stack := stackOf(1000+i, of, s)
			baseline, grown := r.Int64N(1<<20), r.Int64N(1<<16)
			for phase, bytes := range map[string]int64{
				"baseline": baseline, "end": baseline + grown, "growth": grown,
			} {
				held[phase] = append(held[phase], growth.Holding{
					Stack: stack, Kind: growth.KindHeap,
					InuseObjects: 1, InuseBytes: bytes, ResidentBytes: bytes,
				})
				n.totals[phase][strconv.Itoa(rank)] += float64(bytes)
			}
		}
	}

	for phase, name := range map[string]string{
		"baseline": folder.WarmupFile, "end": folder.PlateauFile, "growth": folder.GrowthFile,
	} {
		if err := f.WriteFile(name, func(w io.Writer) error {
			return profile.Write(w, held[phase], profile.Info{
				Time: time.Now(), Duration: time.Minute, Interval: 1 << 19,
				Executable: "/usr/bin/python3",
			})
		}); err != nil {
			t.Fatal(err)
		}
	}

	return n
}

func rankOf(job string, rank, size, pid int) summary.TreeProcess {
	local := rank % ranksOfNode
	return summary.TreeProcess{
		PID: pid, Traced: true, Role: growth.RoleRank, Rank: &rank,
		Identity: &summary.Identity{
			Job: job, RunID: job, Rank: &rank, LocalRank: &local, WorldSize: &size,
			Node: fmt.Sprintf("node-%04d", rank/ranksOfNode),
		},
	}
}

// stackOf is a stack by its number; of: whose it is, 0 being common to all ranks.
func stackOf(pid, of, number int) *growth.Stack {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%d", of, number)
	r := rand.New(rand.NewPCG(h.Sum64(), 25))
	stack := &growth.Stack{ID: h.Sum64() ^ uint64(pid), PID: pid}
	for depth := range framesDeep {
		n := r.IntN(3000>>depth + 20)
		if of > 0 && depth == 0 {
			n += 1000 * of
		}
		stack.Frames = append(stack.Frames, growth.Frame{
			Function: fmt.Sprintf("function_%d", n),
			File:     fmt.Sprintf("/opt/train/module_%d.py", n%97), Line: 1 + n%500,
		})
	}

	return stack
}

// A faulty is a proxy before Pyroscope that refuses some of the pushes as a full server does.
type faulty struct {
	url                     string
	every                   atomic.Int64 // push that is refused; 0: none
	requests, bytes, refuse atomic.Int64
	passing                 sync.RWMutex // locked: pushes are refused
}

func startFaulty(t *testing.T, target string) *faulty {
	t.Helper()
	to := tracertest.Must(url.Parse(target))(t)
	f := new(faulty)
	proxy := httputil.NewSingleHostReverseProxy(to)
	port := freePorts(t, 1)[0]
	server := &http.Server{
		Addr: fmt.Sprintf("127.0.0.1:%d", port),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := f.requests.Add(1)
			f.bytes.Add(r.ContentLength)
			if every := f.every.Load(); every > 0 && n%every == 0 {
				f.refuse.Add(1)
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			if !f.passing.TryRLock() {
				http.Error(w, "the server restarts", http.StatusServiceUnavailable)
				return
			}
			defer f.passing.RUnlock()
			proxy.ServeHTTP(w, r)
		}),
	}

	f.url = "http://" + server.Addr
	go server.ListenAndServe() //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	return f
}

// openPusher opens a pusher with a spool of its own.
func openPusher(t *testing.T, to string, spool int64) *push.Pusher {
	t.Helper()
	p, err := push.Open(push.Options{
		URL: to, Spool: filepath.Join(t.TempDir(), "spool"), MaxSpoolBytes: spool,
	})
	tracertest.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// flush sends the profiles in the spool of a pusher, until it is empty.
func flush(t *testing.T, p *push.Pusher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for {
		err := p.Flush(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("flush: %v, %+v", err, p.Stats())
			return
		}
	}
}

// check compares the server's profiles of a job with the pushed ones, which it may count up to copies
// times.
func check(t *testing.T, p *pyroscope, job string, want totals, copies int) {
	t.Helper()
	for _, phase := range phases {
		got, err := p.sums(residentIn, fmt.Sprintf(`{job_id=%q,phase=%q}`, job, phase), "rank")
		if err != nil {
			t.Error(err)
			continue
		}
		wrong := 0
		for rank, bytes := range want[phase] {
			counted := got[rank] / bytes
			if counted != math.Trunc(counted) || counted < 1 || counted > float64(copies) {
				if wrong++; wrong <= 5 {
					t.Errorf("%s, rank %s: %.0f bytes, want %.0f", phase, rank, got[rank], bytes)
				}
			}
		}
		if wrong > 0 || len(got) != len(want[phase]) {
			t.Errorf("%s: %d ranks of %d are wrong, and %d are there", phase, wrong,
				len(want[phase]), len(got))
		}
	}
}

// number is a variable of the environment, or a default.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n := tracertest.Must(strconv.Atoi(text))(t)
	return n
}

// TestLoad pushes the three profiles of each of 4,096 ranks from 512 nodes, eight at a time, while
// the server refuses some and is restarted. FLEET_RANKS and FLEET_STACKS change the size.
func TestLoad(t *testing.T) {
	ranks, stacks := number(t, "FLEET_RANKS", 4096), number(t, "FLEET_STACKS", 100)
	server := startPyroscope(t, storageV1, unlimited...)
	proxy := startFaulty(t, server.url)
	proxy.every.Store(100)
	want := newTotals()
	var mu sync.Mutex
	var sent, retried, made atomic.Uint64
	var pushing atomic.Int64 // time

	started := time.Now()
	nodes := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		p := openPusher(t, proxy.url, 0)
		workers.Go(func() {
			for first := range nodes {
				n := newNode(t, "load", first, ranks, stacks)
				begun := time.Now()
				if err := p.AddFolder(n.Folder, n.summary); err != nil {
					t.Error(err)
				}
				flush(t, p)
				pushing.Add(int64(time.Since(begun)))
				n.Close()
				os.RemoveAll(n.Path())
				made.Add(uint64(ranksOfNode * len(phases)))

				mu.Lock()
				want.add(n.totals)
				mu.Unlock()
			}
			s := p.Stats()
			sent.Add(s.Sent)
			retried.Add(s.Retried)
			if s.Refused+s.Dropped+s.Damaged > 0 || s.Waiting > 0 {
				t.Errorf("%+v", s)
			}
		})
	}

	for first := 0; first < ranks; first += ranksOfNode {
		if first == ranks/2/ranksOfNode*ranksOfNode {
			// As a load balancer does: Pyroscope 1.12 loses pushes that it acknowledges while it
			// ends.
			proxy.passing.Lock()
			server.restart(t)
			proxy.passing.Unlock()
		}
		nodes <- first
	}

	close(nodes)
	workers.Wait()
	elapsed := time.Since(started)

	if sent.Load() != made.Load() {
		t.Errorf("%d profiles sent, %d made", sent.Load(), made.Load())
	}
	begun := time.Now()
	check(t, server, "load", want, 1)
	asked := time.Since(begun) / time.Duration(len(phases))
	server.process.stop(t, 15) // SIGTERM: it writes its blocks
	t.Logf("%d ranks of %d stacks: %d profiles in %.0f s, %.1f a second; %d answers of 429, "+
		"%d retries; %.0f MB on the wire, %.1f kB a profile; server: %.1f ms of CPU a profile, "+
		"%.1f kB on disk a profile, %.0f MB; the sums by rank of a phase: %.2f s",
		ranks, stacks, made.Load(), elapsed.Seconds(), float64(made.Load())/elapsed.Seconds(),
		proxy.refuse.Load(), retried.Load(),
		float64(proxy.bytes.Load())/1e6, float64(proxy.bytes.Load())/1e3/float64(made.Load()),
		server.cpu().Seconds()*1e3/float64(made.Load()),
		float64(server.diskBytes(t))/1e3/float64(made.Load()), float64(server.diskBytes(t))/1e6,
		asked.Seconds())
}

// TestResent pushes the same files of a spool again: at once, and twice after a restart, so that
// the server has them in memory and in blocks on disk. Storage v1 counts them once; storage v2 counts
// each push until it compacts the blocks, at a time of its own.
func TestResent(t *testing.T) {
	t.Run("storage v1", func(t *testing.T) {
		resend(t, startPyroscope(t, storageV1, unlimited...), 1)
	})
	t.Run("storage v2", func(t *testing.T) {
		resend(t, startPyroscope(t, storageV2, unlimited...), 4)
	})
}

// resend pushes four times to a server that counts a profile up to so many times.
func resend(t *testing.T, server *pyroscope, copies int) {
	p := openPusher(t, server.url, 0)
	n := newNode(t, "resent", 0, ranksOfNode, 100)
	tracertest.NoError(t, p.AddFolder(n.Folder, n.summary))
	n.Close()
	spooled := filepath.Join(t.TempDir(), "spooled")
	tracertest.NoError(t, os.CopyFS(spooled, os.DirFS(p.Directory())))

	flush(t, p)
	check(t, server, "resent", n.totals, 1)
	for i, restarted := range []bool{false, true, true} {
		if restarted {
			server.restart(t)
		}
		tracertest.NoError(t, os.CopyFS(p.Directory(), os.DirFS(spooled)))
		flush(t, p)
		check(t, server, "resent", n.totals, min(copies, i+2))
	}

	if s := p.Stats(); s.Sent != 4*ranksOfNode*uint64(len(phases)) || s.Refused+s.Retried > 0 {
		t.Errorf("%+v", s)
	}
}
