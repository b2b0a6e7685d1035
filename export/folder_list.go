package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// mostListed bounds how many names of a directory are read.
const mostListed = 10_000

// Snapshots are the numbers of the snapshots in the folder, in order, for SnapshotFile. A trace drops some, so there may be gaps.
func (f *Folder) Snapshots() ([]int, error) {
	root, err := openDir(f.root, snapshotDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", cause(err))
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", cause(err))
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostListed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list snapshots: %w", cause(err))
	}
	var numbers []int
	for _, name := range names {
		digits, _, _ := strings.Cut(name, ".")
		n, err := strconv.ParseUint(digits, 10, 31)
		if err == nil && SnapshotFile(int(n)) == snapshotDir+"/"+name {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
