// Package folder writes and reads the output folder of a trace, in directories that other users may
// change meanwhile.
package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// A Folder is the output folder of one trace.
//
// Root writes it into a directory of another user, who may move, replace and link its content
// meanwhile. So everything is relative to the open directory, no symbolic link is followed, and
// only new files are written to. Directories have mode 0700 and files 0600; both belong to the
// Owner.
//
// Only the file names below and the names of SnapshotFile and GPUSnapshotFile can be written.
type Folder struct {
	path             string
	root             *os.Root
	owner            Owner
	mayHoldTemporary bool // an earlier process may have left a temporary file
}

// Create makes the folder. Its parent must exist.
//
// Anything that is already at path is an error. With force, Create takes over a directory of the
// owner that is empty or holds a summary.json or timeline.csv of allocscope. Its mode becomes 0700,
// and Create removes the files that allocscope writes, and no others. A symbolic link is always an
// error.
func Create(path string, owner Owner, force bool) (*Folder, error) {
	if path == "" {
		return nil, errors.New("create output folder: its name is empty (name one with --output)")
	}

	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}

	parent, err := openParent(filepath.Dir(absolute))
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}

	defer parent.Close()

	base := filepath.Base(absolute)
	root, err := makeDir(parent, base, owner)
	if errors.Is(err, fs.ErrExist) {
		root, err = takeOver(parent, base, owner, force)
	}

	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("create %s: %w (choose another with --output: "+
			"root may not write to NFS that squashes it)", path, cause(err))
	case err != nil:
		return nil, failed("create", path, err)
	}

	return &Folder{path: path, root: root, owner: owner}, nil
}

// MakeDirectory makes a directory for files of the owner beside folders of traces, and opens it: path
// may lead elsewhere later. Anything that is already at path is an error.
func MakeDirectory(path string, owner Owner) (*os.File, error) {
	parent, err := openParent(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	defer parent.Close()

	root, err := makeDir(parent, filepath.Base(path), owner)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, cause(err))
	}
	defer root.Close()
	return root.Open(".")
}

// Path is the path that the folder was created with, for messages only. By now it may lead
// elsewhere.
func (f *Folder) Path() string { return f.path }

// Close closes the directory. It removes nothing.
func (f *Folder) Close() error { return f.root.Close() }

// WriteFile makes a file with the content that write writes. The file appears under its name
// complete and on disk, or not at all: after an error, an earlier file of that name is unchanged.
func (f *Folder) WriteFile(name string, write func(io.Writer) error) error {
	dir, base, err := f.open(name, true)
	if err != nil {
		return failed("write", name, err)
	}

	defer dir.Close()

	if err := f.replace(dir, base, write); err != nil {
		return failed("write", name, err)
	}

	return nil
}

// Append makes a file that is written while the trace runs, so that its content survives if
// allocscope is killed. An existing file is an error. Close writes the content to disk.
func (f *Folder) Append(name string) (io.WriteCloser, error) {
	dir, base, err := f.open(name, true)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, cause(err))
	}

	defer dir.Close()

	file, err := f.create(dir, base)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, cause(err))
	}

	return &appendedFile{name, file}, nil
}

// Remove removes a file. The error is fs.ErrNotExist if there is none.
func (f *Folder) Remove(name string) error {
	dir, base, err := f.open(name, false)
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, cause(err))
	}

	defer dir.Close()

	if err := dir.Remove(base); err != nil {
		return fmt.Errorf("remove %s: %w", name, cause(err))
	}

	return nil
}

// open opens the directory that a name lies in. With orMake it makes the directory if there is
// none.
func (f *Folder) open(name string, orMake bool) (*os.Root, string, error) {
	dir, base, err := splitName(name)
	if err != nil {
		return nil, "", err
	}

	root, err := openDir(f.root, dir)
	if errors.Is(err, fs.ErrNotExist) && orMake {
		root, err = makeDir(f.root, dir, f.owner)
	}

	return root, base, err
}

// The files in the folder of a trace, besides the files of SnapshotFile and GPUSnapshotFile.
const (
	SummaryFile   = "summary.json"
	TimelineFile  = "timeline.csv"
	ProcessesFile = "processes.csv"
	GPUsFile      = "gpus.csv"    // only of traces that saw a GPU
	ObjectsFile   = "objects.csv" // only where the objects of a process were counted
	GrowthFile    = "growth.pb.gz"
	WarmupFile    = "warmup.pb.gz"
	PlateauFile   = "plateau.pb.gz"
	SpikesFile    = "spikes.pb.gz" // only where a snapshot lies in a spike
	ReportFile    = "report.html"
)

const snapshotDir = "snapshots"

var (
	fileNames = []string{
		SummaryFile, TimelineFile, ProcessesFile, GPUsFile, ObjectsFile, GrowthFile, WarmupFile,
		PlateauFile, SpikesFile, ReportFile,
	}
	snapshotName    = regexp.MustCompile(`^[0-9]{3,}\.pb\.gz$`)
	gpuSnapshotName = regexp.MustCompile(`^gpu-snapshot(-[0-9]+)?\.pickle$`)
)

// SnapshotFile is the name of the n-th snapshot: "snapshots/003.pb.gz" for 3.
func SnapshotFile(n int) string { return fmt.Sprintf("%s/%03d.pb.gz", snapshotDir, n) }

// GPUSnapshotFile is the name of the caching allocator's memory in a process; pid is 0 where only
// one process of the trace has any: "gpu-snapshot.pickle", "gpu-snapshot-42.pickle".
func GPUSnapshotFile(pid int) string {
	if pid == 0 {
		return "gpu-snapshot.pickle"
	}
	return fmt.Sprintf("gpu-snapshot-%d.pickle", pid)
}

// isFile reports whether a file of this name is one of a trace, besides its snapshots.
func isFile(name string) bool {
	return slices.Contains(fileNames, name) || gpuSnapshotName.MatchString(name)
}

// splitName splits a name into the directory, "." or "snapshots", and the file. It accepts only the
// names that a replacement removes, so that allocscope leaves no file behind that it would not
// recognise.
func splitName(name string) (dir, base string, err error) {
	if isFile(name) {
		return ".", name, nil
	}

	dir, base, _ = strings.Cut(name, "/")
	if dir == snapshotDir && snapshotName.MatchString(base) {
		return dir, base, nil
	}

	return "", "", errors.New("not the name of a file of a trace's folder")
}

// temporaryName is the name of a file until it is complete.
func temporaryName(base string) string { return "." + base + ".tmp" }

// maxListedNames bounds how many names of a directory are read.
const maxListedNames = 10_000

// Snapshots returns the numbers of the snapshots in the folder, in order, for SnapshotFile. A trace
// drops some snapshots, so there may be gaps.
func (f *Folder) Snapshots() ([]int, error) {
	names, err := f.list(snapshotDir)
	if err != nil {
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

// GPUSnapshots returns the names of the files of GPUSnapshotFile in the folder, in order.
func (f *Folder) GPUSnapshots() ([]string, error) {
	names, err := f.list(".")
	if err != nil {
		return nil, fmt.Errorf("list GPU snapshots: %w", cause(err))
	}

	names = slices.DeleteFunc(names, func(name string) bool {
		return !gpuSnapshotName.MatchString(name)
	})
	slices.Sort(names)
	return names, nil
}

// list returns the names in a directory of the folder: none if there is no such directory.
func (f *Folder) list(name string) ([]string, error) {
	root, err := openDir(f.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()

	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()

	names, err := dir.Readdirnames(maxListedNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return names, nil
}

// Open opens the folder of an earlier trace, to read its files and to write new ones, which then
// belong to owner. A folder with neither a summary.json nor a timeline.csv of allocscope is an
// error. The path may contain symbolic links.
func Open(path string, owner Owner) (*Folder, error) {
	root, err := os.OpenRoot(filepath.Clean(path) +
		"/.") // the dot refuses anything but a directory
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil,
			fmt.Errorf("open %s: there is no such folder (name the one that a trace has written)",
				path)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, cause(err))
	}

	if !isTraceFolder(root) {
		_ = root.Close()
		return nil,
			fmt.Errorf("open %s: it holds no %s and no %s of allocscope (name the folder that a "+
				"trace has written)",
				path, SummaryFile, TimelineFile)
	}

	return &Folder{path: path, root: root, owner: owner, mayHoldTemporary: true}, nil
}

// maxFileBytes bounds a file that is read.
const maxFileBytes = 512 << 20

// ReadFile calls read with the content of a file. Anything but a regular file of at most 512 MiB is
// an error; it is fs.ErrNotExist if there is none.
func (f *Folder) ReadFile(name string, read func(io.Reader) error) error {
	dir, base, err := f.open(name, false)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, cause(err))
	}

	defer dir.Close()

	file, err := openRegular(dir, base)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, cause(err))
	}

	defer file.Close()

	if err := read(io.LimitReader(file, maxFileBytes)); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}

	return nil
}

// ModTime is when a file was written.
func (f *Folder) ModTime(name string) (time.Time, error) {
	info, err := f.root.Lstat(name)
	if err != nil {
		return time.Time{}, fmt.Errorf("stat %s: %w", name, cause(err))
	}
	return info.ModTime(), nil
}

// openRegular opens a regular file. O_NONBLOCK keeps it from waiting at a named pipe.
func openRegular(dir *os.Root, base string) (*os.File, error) {
	file, err := dir.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}

	info, err := file.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	case err == nil && info.Size() > maxFileBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", info.Size(), int64(maxFileBytes))
	}

	if err != nil {
		_ = file.Close()
		return nil, err
	}

	return file, nil
}
