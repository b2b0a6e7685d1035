package run

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// preloadVariable names the libraries that the dynamic linker loads first (ld.so(8)).
const preloadVariable = "LD_PRELOAD"

// preloadOf is the LD_PRELOAD of a command: the shim before its present value.
func preloadOf(shim, before string) string {
	if before == "" {
		return shim
	}
	return shim + ":" + before
}

// withoutPreload returns an environment for allocscope itself, whose processes need no libraries of
// the user's.
func withoutPreload(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, preloadVariable+"=")
	})
}

// lookUp returns a variable of an environment; the first one counts, as for getenv(3).
func lookUp(environ []string, name string) (value string, ok bool) {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// interesting are the variables of a training job that are named where sudo has dropped them: by
// their name, or by how it begins.
var interesting = []string{
	"PATH", "LD_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "CUDA_", "NCCL_", "OMP_", "MKL_", "TORCH",
	"HF_", "MALLOC_", "SLURM_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_",
}

// droppedBySudo names the variables of the user's environment that sudo has dropped or replaced:
// sudo itself, the parent, has that environment. The texts are empty where there is nothing, or it
// is not known.
func droppedBySudo(parent int) (dropped, replaced string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", parent))
	if err != nil {
		return "", ""
	}

	var missing, other []string
	before, now := strings.Split(string(raw), "\x00"), os.Environ()
	for _, entry := range before {
		name, value, _ := strings.Cut(entry, "=")
		isInteresting := slices.ContainsFunc(interesting, func(prefix string) bool {
			return strings.HasPrefix(name, prefix)
		})
		if !isInteresting {
			continue
		}
		switch today, ok := lookUp(now, name); {
		case !ok:
			missing = append(missing, growth.Printable(name))
		case today != value:
			other = append(other, growth.Printable(name))
		}
	}

	return strings.Join(missing, ", "), strings.Join(other, ", ")
}
