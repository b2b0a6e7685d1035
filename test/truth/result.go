package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An Outcome is how an answer compares with the truth.
type Outcome string

// Outcomes.
const (
	Right     Outcome = "right"
	Wrong     Outcome = "wrong"     // it says what is not so
	Undecided Outcome = "undecided" // it does not say what is so
	NotRun    Outcome = "not run"   // the program is missing, or does not leak
)

// A Row is the answer about one program.
type Row struct {
	Part   string `json:"part"`
	Name   string `json:"name"`
	Source string `json:"source"` // the package, and the part of it
	// Truth is known from elsewhere. Said is the answer of allocscope.
	Truth   string  `json:"truth"`
	Said    string  `json:"said"`
	Outcome Outcome `json:"outcome"`
	// Lost is the number of leaks or blocks that are lost, Proven of those the number that it calls
	// lost, and False the number of others that it calls lost.
	Lost   int `json:"lost,omitempty"`
	Proven int `json:"proven,omitempty"`
	False  int `json:"false_proofs,omitempty"`
	// Blocks of the program, and the number of those about which the answer is right.
	Blocks      int `json:"blocks,omitempty"`
	BlocksRight int `json:"blocks_right,omitempty"`
	// Seconds that the measurement took, and CPU seconds of allocscope.
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_s"`
}

// About is how and where the rows of a part were measured.
type About struct {
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Date    string `json:"date"`
	TraceS  int    `json:"trace_s,omitempty"` // the length of a trace; absent: there is none
	Note    string `json:"note,omitempty"`
}

// Results are the content of results.json.
type Results struct {
	Parts map[string]About `json:"parts"`
	Rows  []Row            `json:"rows"`
}

// about describes this run.
func (c *campaign) about(commit, note string) About {
	var name unix.Utsname
	_ = unix.Uname(&name) // the kernel's name stays empty
	return About{
		Commit: commit, Note: note, TraceS: int(c.duration.Seconds()),
		Date: time.Now().UTC().Format(time.DateOnly),
		Machine: fmt.Sprintf("Linux %s, %s, %d cores",
			unix.ByteSliceToString(name.Release[:]), runtime.GOARCH, runtime.NumCPU()),
	}
}

// readResults reads a file of results.
func readResults(path string) (results Results, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return results, err
	}
	return results, json.Unmarshal(text, &results)
}

// update writes rows into a file of results, in place of older rows of the same programs.
func update(path string, rows []Row, about About) error {
	results, err := readResults(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	if results.Parts == nil {
		results.Parts = make(map[string]About)
	}

	for _, r := range rows {
		of := about
		if r.Part == "reachability" {
			of.TraceS = 0
		}
		results.Parts[r.Part] = of
		at := slices.IndexFunc(results.Rows, r.isOf)
		if at < 0 {
			at = len(results.Rows)
			results.Rows = append(results.Rows, r)
		}
		results.Rows[at] = r
	}

	slices.SortStableFunc(results.Rows, func(a, b Row) int { return orderOf(a) - orderOf(b) })

	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// isOf reports whether another row is about the same program.
func (r Row) isOf(other Row) bool { return r.Part == other.Part && r.Name == other.Name }

// orderOf is the place of a row's part.
func orderOf(r Row) int {
	for i, part := range parts {
		if part.name == r.Part {
			return i
		}
	}
	return len(parts)
}

// line is a row of the table that the terminal shows.
func (r Row) line() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %.0f s | %.1f s |\n", r.Part, r.Name, r.Truth,
		r.Said, strings.ReplaceAll(string(r.Outcome), "wrong", "**wrong**"), r.Seconds, r.CPU)
}

// A tally counts the rows of a part.
type tally struct {
	right, wrong, undecided, notRun int
	lost, proven, falseProofs       int // as in Row
	blocks, blocksRight             int
}

func tallyOf(rows []Row, part string) (t tally) {
	for _, r := range rows {
		if r.Part != part {
			continue
		}
		switch r.Outcome {
		case Right:
			t.right++
		case Wrong:
			t.wrong++
		case Undecided:
			t.undecided++
		case NotRun:
			t.notRun++
			continue
		}
		t.blocks, t.blocksRight = t.blocks+r.Blocks, t.blocksRight+r.BlocksRight
		t.lost, t.proven, t.falseProofs = t.lost+r.Lost, t.proven+r.Proven, t.falseProofs+r.False
	}
	return t
}

// run is the number of rows that have an answer.
func (t tally) run() int { return t.right + t.wrong + t.undecided }

// Bounds of the campaign, as shares.
const (
	minProven = 0.90 // of the leaks that are lost
	minKept   = 0.95 // of the blocks, right
	maxAlarms = 0.01 // of the loops
	minJobs   = 0.75 // of the jobs, decided
)

// boundsOf returns an error for each bound that the rows miss. Parts without rows have none. A slice
// is too short for the shares, and must only say nothing that is wrong.
func boundsOf(rows []Row, isSlice bool) (err error) {
	miss := func(format string, values ...any) {
		err = errors.Join(err, fmt.Errorf(format, values...))
	}

	for _, part := range parts {
		t := tallyOf(rows, part.name)
		if t.falseProofs > 0 {
			miss("%s: %d are called lost and are not", part.name, t.falseProofs)
		}
		if t.notRun > 0 {
			miss("%s: %d were not run", part.name, t.notRun)
		}
		if t.run() == 0 {
			continue
		}

		switch part.name {
		case "leaks":
			if share := ratio(t.proven, t.lost); share < minProven && !isSlice {
				miss("leaks: %.0f%% of those that are lost are proven", 100*share)
			}
			if t.wrong > 0 {
				miss("leaks: %d are wrong", t.wrong)
			}
		case "reachability":
			if share := ratio(t.blocksRight, t.blocks); share < minKept && !isSlice {
				miss("reachability: %.1f%% of the blocks are right", 100*share)
			}
		case "false alarms":
			if share := ratio(t.wrong, t.run()); share > maxAlarms {
				miss("false alarms: %d of %d", t.wrong, t.run())
			}
		case "jobs":
			if share := ratio(t.right, t.run()); share < minJobs && !isSlice {
				miss("jobs: %.0f%% are decided", 100*share)
			}
			if t.wrong > 0 {
				miss("jobs: %d are wrong", t.wrong)
			}
		default:
			if t.wrong > 0 {
				miss("%s: %d are wrong", part.name, t.wrong)
			}
		}
	}
	return err
}

// ratio is 1 of nothing.
func ratio(part, whole int) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}
