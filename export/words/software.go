package words

import (
	"strings"

	"github.com/allocscope/allocscope/export/summary"
)

// Software has the versions of the software of the process, as far as they are known: "Python 3.11.2,
// PyTorch 2.5.1, glibc 2.36".
func Software(s *summary.Summary) string {
	python := s.Software.Python
	if python == "" && s.Objects != nil {
		python = s.Objects.Python
	}
	return named([]namedVersion{
		{"Python ", python},
		{"PyTorch ", s.Software.Torch},
		{"", s.Software.Libc},
		{"malloc of ", s.Software.Malloc},
	})
}

// SoftwareLine is Software with allocscope, the first GPU of a process that uses one, and the kernel.
func SoftwareLine(s *summary.Summary) string {
	gpu := ""
	if len(s.GPUMemory) > 0 && len(s.GPUs) > 0 {
		gpu = s.GPUs[0].Name
	}
	return named([]namedVersion{
		{"allocscope ", s.Version}, {"", Software(s)}, {"", gpu}, {"Linux ", s.Kernel},
	}) + inParentheses(s.Architecture)
}

type namedVersion struct{ name, version string }

// named joins the versions that are known, with their names.
func named(all []namedVersion) string {
	var texts []string
	for _, v := range all {
		if v.version != "" {
			texts = append(texts, v.name+v.version)
		}
	}
	return strings.Join(texts, ", ")
}
