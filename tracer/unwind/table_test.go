package unwind

import (
	"debug/elf"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// Rows at random distances, from one byte to several pages: every address has the rule of the last row before it.
func TestALookUpFindsTheLastRowBefore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := newWriter(elf.EM_X86_64, 0x400000, 0)
		var want []bpf.KernelRule // by address
		for len(want) < 20_000 {
			rule := sp(8 * random.Int32N(20))
			w.add(w.base+uint64(len(want)), w.number(rule))
			for range 1 + random.IntN(1<<random.IntN(13)) {
				want = append(want, rule)
			}
		}
		end := w.base + uint64(len(want))
		table, err := w.table(end)
		if err != nil {
			t.Fatal(err)
		}
		checkTable(t, table)
		for i, rule := range want {
			if got := table.Rule(w.base + uint64(i)); got != rule {
				t.Fatalf("at %#x: %s, want %s", i, describe(got), describe(rule))
			}
		}
		for _, vaddr := range []uint64{0, w.base - 1, end, end + 1, end + pageBytes, 1 << 40, 1<<64 - 1} {
			if got := table.Rule(vaddr); got != ruleNone {
				t.Fatalf("at %#x, outside: %s", vaddr, describe(got))
			}
		}
	}
}

func TestTheHeaderDescribesTheTable(t *testing.T) {
	w := newWriter(elf.EM_X86_64, 0x1000, 0)
	w.add(0x1000, noRule)
	w.add(0x1004, w.number(with(sp(-3), atCFA, -16)))
	w.add(0x1803, w.number(fp(16)))
	table, err := w.table(0x1c00)
	if err != nil {
		t.Fatal(err)
	}
	want := []uint32{
		3, 4, 8, 12, // header
		0, 2, 2, 3, // index: page 1 begins no row of its own
		0, 4<<16 | 2, 3<<16 | 3, 0, // rows, made even
		0, 0, 1, 0, // RULE_NONE, RULE_UNSUPPORTED
		3 | 1<<8 | 0xfff0<<16, 0xffff_fffd, 4, 16,
	}
	for i, value := range want {
		if got := table.word(uint32(i)); got != value {
			t.Errorf("word %d is %#x, want %#x", i, got, value)
		}
	}
	if len(table.Words) != len(want)/2 || table.Rows != 3 || table.Rules != 4 || table.Base != 0x1000 {
		t.Errorf("%d words, %d rows, %d rules, base %#x", len(table.Words), table.Rows, table.Rules, table.Base)
	}
}

func TestRulesTooManyAreUnsupported(t *testing.T) {
	w := newWriter(elf.EM_X86_64, 0, 0)
	for i := range uint64(70_000) {
		w.add(i, w.number(sp(int32(i))))
	}
	table, err := w.table(70_000)
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table)
	for vaddr, want := range map[uint64]bpf.KernelRule{0: sp(0), 65_533: sp(65_533), 65_534: ruleUnsupported, 69_999: ruleUnsupported} {
		if got := table.Rule(vaddr); got != want {
			t.Errorf("at %d: %s, want %s", vaddr, describe(got), describe(want))
		}
	}
	if table.Rules != 1<<16 {
		t.Errorf("%d rules", table.Rules)
	}
}

func TestRowsTooManyAreAnError(t *testing.T) {
	w := newWriter(elf.EM_X86_64, 0, maxRows)
	for i := range uint64(maxRows + 1) {
		w.add(i, uint32(i%2))
	}
	if _, err := w.table(maxRows + 1); !errors.Is(err, errRows) {
		t.Errorf("error %v", err)
	}
}
