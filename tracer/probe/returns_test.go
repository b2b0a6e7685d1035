package probe

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestWithoutReturnProbes(t *testing.T) {
	for _, library := range []string{
		"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2",
	} {
		t.Run("functions are followed by the instructions that return "+library, func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "leak.c", "-pthread"), "1", "1", "1", "1")
			command.Env = []string{"LD_PRELOAD=" + library}
			files := tracertest.Must(Resolve(start(t, command)))(t)
			without := tracertest.Must(WithoutReturnProbes(files))(t)
			for i, file := range without {
				mustBeExits(t, file)
				mustFollow(t, files[i], file)
			}
		})
	}

	for _, f := range []Function{
		{Name: "malloc", Form: bpf.CallMalloc}, {Name: "realloc", Form: bpf.CallRealloc},
	} {
		t.Run(f.Name+" with unknown returns is an error", func(t *testing.T) {
			site := Site{Function: f, names: []string{f.Name}}
			file := FileSites{Mapping: process.Mapping{Path: "/lib"}, Sites: []Site{site}}
			_, err := WithoutReturnProbes([]FileSites{file})
			if err == nil || !strings.Contains(err.Error(), f.Name+" in /lib") {
				t.Error(err)
			}
		})
	}

	t.Run("other function with unknown returns is not probed", func(t *testing.T) {
		f := Function{Name: "valloc", Form: bpf.CallValloc}
		files, err := WithoutReturnProbes([]FileSites{{Sites: []Site{{Function: f}}}})
		want := []string{"valloc: where it returns is not known"}
		if err != nil || len(files[0].Sites) != 0 || !slices.Equal(files[0].Unprobed, want) {
			t.Errorf("%+v, %v", files, err)
		}
	})
}

// mustBeExits wants each exit to be a return instruction or a jump to a stub, by objdump.
func mustBeExits(t *testing.T, file FileSites) {
	t.Helper()
	listing := disassemble(t, file.Mapping.Path)
	returns, text := returnsOf(t, file.Mapping.Path)
	for _, s := range file.Sites {
		if !s.Function.isExit() {
			continue
		}

		at := s.Offset - text.Offset + text.Addr
		i, ok := find(listing, at)
		if !ok {
			t.Errorf("%s at %#x is in the middle of an instruction", s.Function.Name, at)
			continue
		}
		isStub := strings.Contains(listing[i].operands, "@plt")
		if s.Function.Form == bpf.CallExit && (!returns[at] || isStub) ||
			s.Function.Form == bpf.CallExitMemset && !isStub {
			t.Errorf("%s at %#x is %+v", s.Function.Name, at, listing[i])
		}
	}
}

// mustFollow wants all functions of a file with return probes to be followed by exits instead, or
// named as not probed.
func mustFollow(t *testing.T, probed, exits FileSites) {
	t.Helper()
	for _, s := range probed.Sites {
		name := s.Function.Name
		isFollowed := slices.ContainsFunc(exits.Sites, func(exit Site) bool {
			return exit.Function.Name == name && exit.Function.Exits
		})
		isNamed := slices.Contains(exits.Unprobed, name+unknownExits)
		if s.Function.returns() && isFollowed == isNamed {
			t.Errorf("%s: followed %v, named as not probed %v", name, isFollowed, isNamed)
		}
	}

	if slices.ContainsFunc(exits.Sites, func(s Site) bool { return s.Function.returns() }) {
		t.Errorf("%v: one has a return probe", exits.Functions())
	}
}
