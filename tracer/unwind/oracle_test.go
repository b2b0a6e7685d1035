package unwind

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Binutils' readelf interprets the same sections with its own code: its rows and ours agree at
// their first and last byte.
func TestRulesAgreeWithReadelf(t *testing.T) {
	for path, least := range map[string]int{
		"/usr/lib/x86_64-linux-gnu/libc.so.6":      20_000,
		"/lib64/ld-linux-x86-64.so.2":              1_000,
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6": 20_000,
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3": 50_000,
		"/usr/bin/python3":                         50_000,
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			table := buildFile(t, path)
			rows := interpreted(t, path)
			gaps := checkGaps(t, table, rows)
			var compared, other int

			for _, row := range rows {
				want, ok := row.rule()
				if !ok {
					other++
				}

				for _, vaddr := range []uint64{row.start, row.end - 1} {
					got := table.Rule(vaddr)
					switch {
					case ok && got != want:
						t.Errorf("at %#x: %s, readelf prints %s: %s", vaddr, describe(got),
							row.text, describe(want))
					case !ok && !plausible(got):
						t.Errorf("at %#x: %s, readelf prints %s", vaddr, describe(got), row.text)
					}

					compared++
				}
			}

			t.Logf("%d addresses and %d gaps compared; forms without detail: %d", compared, gaps,
				other)
			if compared < 2*least || gaps == 0 || other > len(rows)/50 {
				t.Error("too few rows, or too many without detail")
			}
		})
	}
}

// checkGaps checks that code outside of readelf's functions has no rule, and returns the number
// of such places. Up to 15 bytes are padding.
func checkGaps(t *testing.T, table *Table, rows []interpretedRow) (gaps int) {
	t.Helper()
	slices.SortFunc(rows, func(a, b interpretedRow) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(rows); i++ {
		end, next := rows[i-1].end, rows[i].start
		if next <= end+15 {
			continue
		}

		gaps++
		for _, vaddr := range []uint64{end, next - 1} {
			if got := table.Rule(vaddr); got != ruleNone {
				t.Errorf("between functions, at %#x: %s", vaddr, describe(got))
			}
		}
	}

	return gaps
}

// plausible reports whether r may be the rule of a row of which readelf shows no detail: never a
// common rule.
func plausible(r bpf.Rule) bool {
	switch bpf.RuleKind(r.Kind) {
	case bpf.RulePlt, bpf.RuleUnsupported,
		bpf.RuleFpDeref, bpf.RuleSpDeref:
		return true
	}

	return r.Fp&15 == uint8(bpf.FpAtFp)
}

func describe(r bpf.Rule) string {
	return fmt.Sprintf("{kind %d, fp %d, extra %d, fp offset %d, CFA offset %d}", r.Kind, r.Fp&15,
		r.Fp>>4, r.FpOffset, r.CfaOffset)
}

// An interpretedRow is one row of readelf's output.
type interpretedRow struct {
	start, end   uint64
	cfa, rbp, ra string
	signal       bool
	text         string
}

// rule is the rule that the BPF programs should get. ok is false for expressions, which readelf
// does not show, for rbp in another register, and for a CFA below the return address, which is
// musl's way to mark the start of a thread.
func (r interpretedRow) rule() (rule bpf.Rule, ok bool) {
	base, offset, _ := splitOffset(r.cfa)
	fpBase, fpOffset, _ := splitOffset(r.rbp)
	switch {
	case r.signal:
		return kind(bpf.RuleSignal), true
	case r.ra == "u":
		return kind(bpf.RuleStop), true
	case r.ra == "rdi" && base == "rsp":
		rule = bpf.Rule{Kind: uint8(bpf.RuleReturnRegister), CfaOffset: offset}
		return extra(rule, uint8(bpf.LeafRdi)), true
	case r.ra != "c-8", base == "rsp" && offset < 8:
		return rule, false
	case base == "rsp":
		rule = sp(offset)
	case base == "rbp":
		rule = fp(offset)
	default:
		leaf, ok := leafRegisterNames[base]
		if !ok {
			return rule, false
		}

		rule = register(leaf, offset)
	}

	switch {
	case fpBase == "" || fpBase == "u" || fpBase == "s":
	case fpBase == "c" && base == "rsp" && fpOffset < -offset:
		// Below the stack pointer: popped already, the register has it.
	case fpBase == "c" && fpOffset >= math.MinInt16:
		rule = with(rule, atCFA, int16(fpOffset))
	default:
		return rule, false
	}

	return rule, true
}

// leafRegisterNames are the registers that hand-written code keeps its CFA in.
var leafRegisterNames = map[string]bpf.LeafRegister{
	"rax": bpf.LeafRax,
	"r9":  bpf.LeafR9,
	"r11": bpf.LeafR11,
	"r15": bpf.LeafR15,
}

// splitOffset splits "rsp+16", "c-24" and "u".
func splitOffset(s string) (base string, offset int32, ok bool) {
	i := strings.IndexAny(s, "+-")
	if i < 0 {
		return s, 0, false
	}

	n, err := strconv.ParseInt(s[i:], 10, 32)
	return s[:i], int32(n), err == nil
}

// interpreted runs readelf on a file and returns its rows, each ending where the next begins.
func interpreted(t *testing.T, path string) []interpretedRow {
	t.Helper()
	command := exec.Command("readelf", "--debug-dump=frames-interp", "--wide", path)
	out := tracertest.Must(command.StdoutPipe())(t)
	tracertest.NoError(t, command.Start())

	r := reading{cies: make(map[string]cie)}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		r.line(lines.Text())
	}

	r.finish()
	// It also ends with status 1 because a linked debug file is missing: only the number of rows
	// counts.
	if err := command.Wait(); err != nil && command.ProcessState.ExitCode() != 1 {
		t.Fatal(err)
	}

	return r.rows
}

// A cie has the data that the functions that refer to it share.
type cie struct {
	signal bool
	first  interpretedRow // without addresses
}

// inRegister is readelf's notation of a register whose value is in another.
var inRegister = regexp.MustCompile(`r\d+ \((\w+)\)`)

// A reading is the state of reading readelf's output.
type reading struct {
	rows    []interpretedRow
	cies    map[string]cie
	cie     string // that is being read, or that the function refers to
	inFDE   bool
	columns []string
	begin   int // first row of the function
	end     uint64
	start   uint64
}

// line reads one line: a header of an entry, the names of the columns, or a row.
func (r *reading) line(line string) {
	fields := strings.Fields(inRegister.ReplaceAllString(line, "$1"))
	switch {
	case len(fields) > 4 && fields[3] == "CIE":
		r.finish()
		r.cie = fields[0]
		r.cies[r.cie] = cie{signal: strings.Contains(fields[4], "S")}
	case len(fields) > 5 && fields[3] == "FDE":
		r.finish()
		r.inFDE, r.begin = true, len(r.rows)
		r.cie = strings.TrimPrefix(fields[4], "cie=")
		from, to, _ := strings.Cut(strings.TrimPrefix(fields[5], "pc="), "..")
		r.start, r.end = number(from), number(to)
	case len(fields) > 1 && fields[0] == "LOC":
		r.columns = fields
	case len(fields) > 1 && len(fields) == len(r.columns):
		r.row(fields, line)
	}
}

func (r *reading) row(fields []string, line string) {
	row := interpretedRow{start: number(fields[0]), signal: r.cies[r.cie].signal, text: line}
	for i, column := range r.columns {
		switch column {
		case "CFA":
			row.cfa = fields[i]
		case "rbp":
			row.rbp = fields[i]
		case "ra":
			row.ra = fields[i]
		}
	}

	if r.inFDE {
		r.rows = append(r.rows, row)
	} else {
		r.cies[r.cie] = cie{signal: row.signal, first: row}
	}
}

// finish ends a function: one without rows has the row of its CIE, and rows without addresses are
// dropped.
func (r *reading) finish() {
	if !r.inFDE {
		return
	}

	r.inFDE, r.columns = false, nil
	if len(r.rows) == r.begin {
		row := r.cies[r.cie].first
		row.start = r.start
		r.rows = append(r.rows, row)
	}

	kept := r.rows[:r.begin]
	for i := r.begin; i < len(r.rows); i++ {
		row := r.rows[i]
		row.end = r.end
		if i+1 < len(r.rows) {
			row.end = r.rows[i+1].start
		}

		if row.end > row.start {
			kept = append(kept, row)
		}
	}

	r.rows = kept
}

func number(hex string) uint64 {
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0
	}
	return n
}
