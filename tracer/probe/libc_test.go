package probe

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// Names of the argument registers and of those that a stack walk starts from, as objdump writes them.
var (
	argumentNames = [][]string{
		{"%rdi", "%edi", "%di", "%dil"},
		{"%rsi", "%esi", "%si", "%sil"},
		{"%rdx", "%edx", "%dx", "%dl", "%dh"},
		{"%rcx", "%ecx", "%cx", "%cl", "%ch"},
	}
	frameNames = []string{"%rsp", "%esp", "%sp", "%spl", "%rbp", "%ebp", "%bp", "%bpl"}
)

// Every function of the C library is given to chooseSite, and objdump's listing says whether it has chosen well.
func TestSitesInTheCLibraryAreRightByObjdump(t *testing.T) {
	path := cLibrary(t)
	file, image := openBoth(t, path)
	listing := disassemble(t, path)
	var tried, cheap int
	for name, address := range addresses(t, path, "-D", "--defined-only") {
		first, ok := find(listing, address)
		if !ok {
			continue // not code
		}
		for arguments := 1; arguments <= len(argumentNames); arguments++ {
			site, err := siteAt(image, Function{Name: name, Form: bpf.KernelCallFormCALL_MALLOC, Arguments: arguments}, address)
			if err != nil {
				t.Fatal(err)
			}
			tried++
			at := address + site.Offset - fileOffset(t, file, address)
			if why := wrong(listing[first:], at, site.Emulated, arguments); why != "" {
				t.Errorf("%s at %#x, %d arguments, %s: %s", name, at, arguments, site.Reason, why)
			}
			if site.Emulated {
				cheap++
			}
		}
	}
	t.Logf("%d of %d sites are emulated by the kernel", cheap, tried)
	if tried < 4000 || cheap < tried/2 {
		t.Errorf("%d of %d sites are emulated by the kernel", cheap, tried)
	}
}

// wrong says what is wrong with a site in a function whose listing is given; nothing if it is right.
func wrong(listing []line, at uint64, emulated bool, arguments int) string {
	needed := slices.Concat(append(slices.Clone(argumentNames[:arguments]), frameNames)...)
	for _, l := range listing {
		switch {
		case l.address > at:
			return "inside an instruction"
		case l.address == at && !emulated && l.address != listing[0].address:
			return "single-stepped and not at the entry"
		case l.address == at && emulated && !isEmulated(l):
			return "the kernel does not emulate " + l.mnemonic + " " + l.operands
		case l.address == at:
			return ""
		case !isPlain(l):
			return "behind " + l.mnemonic + " " + l.operands
		case writes(l, needed):
			return "behind a write of what is needed: " + l.mnemonic + " " + l.operands
		}
	}
	return "behind the end"
}

func isEmulated(l line) bool {
	switch l.mnemonic {
	case "push":
		return strings.HasPrefix(l.operands, "%r")
	case "call", "jmp":
		return !strings.HasPrefix(l.operands, "*")
	case "nop":
		return l.operands == ""
	}
	return isConditional(l)
}

func isConditional(l line) bool {
	return strings.HasPrefix(l.mnemonic, "j") && l.mnemonic != "jmp" && l.mnemonic != "jrcxz" && l.mnemonic != "jecxz"
}

// isPlain reports whether an instruction does nothing but what its operands say, and falls through.
func isPlain(l line) bool {
	for _, prefix := range []string{
		"mov", "lea", "xor", "test", "cmp", "nop", "endbr64", "add", "sub", "and", "or", "shl", "shr", "sar", "neg", "not", "mul", "imul",
	} {
		if strings.HasPrefix(l.mnemonic, prefix) && !strings.HasPrefix(l.mnemonic, "movs") && !strings.HasPrefix(l.mnemonic, "cmps") {
			return true
		}
	}
	return strings.HasPrefix(l.mnemonic, "movsl") || strings.HasPrefix(l.mnemonic, "movsx")
}

// writes reports whether the last operand is one of the registers, in an instruction that writes it.
func writes(l line, registers []string) bool {
	if strings.HasPrefix(l.mnemonic, "test") || strings.HasPrefix(l.mnemonic, "cmp") || strings.HasPrefix(l.mnemonic, "nop") {
		return false
	}
	if strings.HasPrefix(l.mnemonic, "mul") || strings.HasPrefix(l.mnemonic, "imul") && !strings.Contains(l.operands, ",") {
		return slices.Contains(registers, "%rdx")
	}
	last := l.operands[strings.LastIndex(l.operands, ",")+1:]
	return slices.Contains(registers, strings.TrimSpace(last))
}

// A site that code elsewhere jumps to would be passed twice by one call, or by other functions.
func TestNothingJumpsToASite(t *testing.T) {
	path := cLibrary(t)
	file, image := openBoth(t, path)
	exported := addresses(t, path, "-D", "--defined-only")
	sites := make(map[uint64]string)
	for _, f := range Functions {
		address, ok := exported[f.Name]
		if !ok {
			t.Fatalf("the C library has no %s", f.Name)
		}
		site, err := siteAt(image, f, address)
		if err != nil {
			t.Fatal(err)
		}
		if at := address + site.Offset - fileOffset(t, file, address); at != address {
			sites[at] = f.Name
		}
	}
	for _, l := range disassemble(t, path) {
		if !strings.HasPrefix(l.mnemonic, "j") && l.mnemonic != "call" {
			continue
		}
		target, _, _ := strings.Cut(l.operands, " ")
		for at, name := range sites {
			if target == strconv.FormatUint(at, 16) {
				t.Errorf("%s %s at %#x jumps to the site of %s", l.mnemonic, l.operands, l.address, name)
			}
		}
	}
}
