package probe

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Each allocator's library beside a program, and the functions of it that only call others of it, by objdump's listing read by hand.
var forwarders = map[string][]string{
	"libjemalloc.so.2":         {"_ZdlPv", "_ZdaPv", "_ZdlPvmSt11align_val_t", "_Znam", "_ZnwmSt11align_val_t"},
	"libtcmalloc_minimal.so.4": {},
	"libmimalloc.so.2":         {"valloc", "posix_memalign", "_ZdlPvm", "mi_free_size", "mi_free_size_aligned", "mi_realloc", "mi_new_aligned", "mi_malloc_aligned"},
	"libstdc++.so.6":           {"_Znwm", "_Znam", "_ZdlPv", "_ZdaPvm", "_ZnwmSt11align_val_t"},
}

func TestNoFunctionThatOnlyCallsAnotherIsProbed(t *testing.T) {
	program := tracertest.Build(t, "operators.cc")
	for library, names := range forwarders {
		command := exec.Command(program)
		command.Env = []string{"LD_PRELOAD=" + library}
		targets, err := Resolve(run(t, command))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			for _, name := range names {
				if slices.Contains(target.Functions(), name) {
					t.Errorf("%s: %s in %s is probed", library, name, target.File.Path)
				}
			}
		}
		mustProbeOnceByInstruction(t, targets)
	}
}

// mustProbeOnceByInstruction fails if an instruction has two probes, or two functions have one number.
func mustProbeOnceByInstruction(t *testing.T, targets []Target) {
	t.Helper()
	for _, target := range targets {
		seen, numbers := make(map[uint64]bool), make(map[int]bool)
		for _, s := range target.Sites {
			if seen[s.Offset] || numbers[s.number] {
				t.Errorf("%s in %s at %#x is probed twice, or has the number %d of another", s.Function.Name, target.File.Path, s.Offset, s.number)
			}
			seen[s.Offset], numbers[s.number] = true, true
		}
	}
}

// A return probe at what may throw would end the process: objdump says that each of the exits is a return.
func TestFunctionsThatMayThrowAreLeftByTheirReturnsAlone(t *testing.T) {
	program := tracertest.Build(t, "operators.cc")
	for library := range forwarders {
		command := exec.Command(program)
		command.Env = []string{"LD_PRELOAD=" + library}
		targets, err := Resolve(run(t, command))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			path := target.File.Path
			file, _ := openBoth(t, path)
			returns := make(map[uint64]bool)
			for _, l := range disassemble(t, path) {
				returns[l.address] = l.mnemonic == "ret" || l.mnemonic == "repz" || l.mnemonic == "bnd"
			}
			text := file.Section(".text")
			for _, s := range target.Sites {
				if s.Function.Throws && target.returning().has(s.Function.Name) {
					t.Errorf("%s in %s has a return probe", s.Function.Name, path)
				}
				isExit := s.Function.Form == bpf.KernelCallFormCALL_EXIT
				if isExit && !returns[s.Offset-text.Offset+text.Addr] {
					t.Errorf("%s at %#x of %s is not a return", s.Function.Name, s.Offset, path)
				}
			}
		}
		if strings.HasPrefix(library, "libstdc++") {
			continue
		}
		if !slices.ContainsFunc(targets, func(t Target) bool { return t.has("return of _Znwm") }) {
			t.Errorf("%s: nothing tells when operator new returns", library)
		}
	}
}

func (t Target) has(name string) bool {
	return slices.ContainsFunc(t.Sites, func(s Site) bool { return s.Function.Name == name })
}
