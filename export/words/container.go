package words

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

var containerKinds = map[growth.ContainerKind]string{
	growth.ContainerAnonymous:   "anonymous memory of processes",
	growth.ContainerForked:      "less anonymous memory that forks share, or that another cgroup has",
	growth.ContainerShared:      "shared memory and files in RAM",
	growth.ContainerCache:       "page cache, which the kernel takes back",
	growth.ContainerReclaimable: "kernel: names and inodes of files, which it takes back",
	growth.ContainerSlab:        "kernel: slab that it cannot take back",
	growth.ContainerPageTables:  "kernel: page tables",
	growth.ContainerStacks:      "kernel: stacks of threads",
	growth.ContainerSockets:     "kernel: buffers of sockets",
	growth.ContainerKernel:      "kernel: the rest",
	growth.ContainerRest:        "charged, and of no kind",
}

// ContainerLines has a line for each row of the container, and their sum: the charge. ok is false
// where the job is in none.
func ContainerLines(c *summary.Container) (lines []BreakdownLine, sum KindSum, ok bool) {
	if c == nil {
		return nil, sum, false
	}
	for _, r := range c.Rows {
		lines = append(lines, BreakdownLine{Label: containerLabel(r), KindSum: KindSum{
			Delta: float64(r.EndBytes - r.StartBytes), End: float64(r.EndBytes),
		}})
	}
	return lines, KindSum{Delta: float64(c.EndBytes - c.StartBytes), End: float64(c.EndBytes)}, true
}

// ContainerTitle is the charge of the container and its limit.
func ContainerTitle(c *summary.Container) string {
	text := "The container is charged with " + units.Bytes(float64(c.EndBytes))
	if c.LimitBytes != nil {
		text += " of " + units.Bytes(float64(*c.LimitBytes))
	}
	return text
}

// containerLabel names a row: "anonymous memory of PID 12 (python3)", "shared memory and files in
// RAM: /dev/shm/x of PID 12 (python3)".
func containerLabel(r summary.ContainerRow) string {
	kind := containerKinds[r.Kind]
	switch r.Kind {
	case growth.ContainerAnonymous:
		return "anonymous memory of " + processesText(r)
	case growth.ContainerShared, growth.ContainerCache:
		return kind + ": " + containerFiles(r, r.File)
	}
	return kind
}

// processesText names the processes of a row of anonymous memory.
func processesText(r summary.ContainerRow) string {
	switch {
	case r.Count > 1 || r.Count == 1 && r.PID == 0:
		return units.Plural(r.Count, "smaller process", "smaller processes")
	case r.PID != 0:
		return processName(r)
	}
	return "no process in it"
}

// containerFiles names the files of a row, of which the largest has a name.
func containerFiles(r summary.ContainerRow, name string) string {
	switch {
	case r.Count > 0:
		name = units.Plural(r.Count, "smaller file", "smaller files")
	case r.File == "":
		return "the rest"
	}
	if r.PID != 0 {
		name += " of " + processName(r)
	}
	return name
}

func processName(r summary.ContainerRow) string { return fmt.Sprintf("PID %d (%s)", r.PID, r.Name) }

// grownFiles names the files in RAM of the container that have grown most, where they are known.
func grownFiles(c *summary.Container) []string {
	if c == nil {
		return nil
	}
	var most summary.ContainerRow
	for _, r := range c.Rows {
		isKnown := r.Kind == growth.ContainerShared && (r.File != "" || r.Count > 0)
		if isKnown && r.EndBytes-r.StartBytes > most.EndBytes-most.StartBytes {
			most = r
		}
	}
	grown := most.EndBytes - most.StartBytes
	if grown <= 0 {
		return nil
	}
	return []string{containerFiles(most, most.File) + ", " + units.Signed(float64(grown))}
}

// grownKernel names the kind of the kernel's memory that most of its growth is, where the kernel
// divides it.
func grownKernel(c *summary.Container) []string {
	if c == nil {
		return nil
	}
	var most summary.ContainerRow
	var all int64
	for _, r := range c.Rows {
		if !r.Kind.IsKernel() {
			continue
		}
		grown := r.EndBytes - r.StartBytes
		all += grown
		if r.Kind != growth.ContainerKernel && grown > most.EndBytes-most.StartBytes {
			most = r
		}
	}
	grown := most.EndBytes - most.StartBytes
	if grown <= 0 || 2*grown < all {
		return nil
	}
	return []string{strings.TrimPrefix(containerKinds[most.Kind], "kernel: ") + ", " +
		units.Signed(float64(grown))}
}

// containerNotes say which memory outside of the traced processes is a large part of the container,
// or grows, in two lines.
func containerNotes(s *summary.Summary) []string {
	c := s.Container
	if c == nil || c.LimitBytes == nil {
		return nil
	}

	var parts []string
	for _, r := range c.Beside[:min(len(c.Beside), 2)] {
		text := units.Bytes(float64(r.EndBytes)) + " " + besideText(r)
		if grown := r.EndBytes - r.StartBytes; grown != 0 {
			text += fmt.Sprintf(" (%s)", units.Signed(float64(grown)))
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the container has %s of %s: %s", units.Bytes(float64(c.EndBytes)),
		units.Bytes(float64(*c.LimitBytes)), strings.Join(parts, "; "))}
}

// besideText names the sum of one kind, with the process or the file of its largest row.
func besideText(r summary.ContainerRow) string {
	text := containerKinds[r.Kind]
	switch r.Kind {
	case growth.ContainerAnonymous:
		text = "of other processes"
	case growth.ContainerShared:
		text = "files in RAM"
	}

	switch {
	case r.File != "" || r.Count > 0 && r.Kind != growth.ContainerAnonymous:
		return text + ", most in " + containerFiles(r, fileName(r.File))
	case r.PID != 0:
		return text + ", most of " + processName(r)
	}
	return text
}

// fileName is the name of a file that may have been deleted.
func fileName(path string) string { return filepath.Base(strings.TrimSuffix(path, " (deleted)")) }
