// Package bundle makes one file of the folder of a trace, for a report of a problem: without the
// names that the user has not published.
//
// Each text of summary.json is a code, or has a rule. Numbers, codes, and names from Python's
// library, from installed packages and from the system stay. All else is replaced or left out.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
)

const (
	// Schema is the version of the form of bundle.json. It changes when a field goes or changes its
	// meaning; fields may be added at any time.
	Schema = "allocscope-bundle/1"
	// Name is the folder that a bundle unpacks to.
	Name = "allocscope-bundle"
	// ContentsFile lists the contents of a bundle.
	ContentsFile = "bundle.json"

	// maxBytes bounds a bundle before it is compressed.
	maxBytes = 512 << 20
)

// Options are what to put into a bundle.
type Options struct {
	// KeepNames leaves all names in.
	KeepNames bool
	// Hide has names that look public and are not, such as the name of an installed package.
	Hide []string
	// Version of allocscope, and the known facts of the machine that makes the bundle.
	Version string
	Machine Machine
	// Own are the names of allocscope's commands and flags, as they are typed: "trace", "--limit".
	Own []string
	// Documents are written as JSON, by their file names: pointers to values, in which the names
	// are replaced.
	Documents map[string]any
}

// A Machine has the facts that a bundle reports of a machine.
type Machine struct {
	// System is the distribution, as /etc/os-release names it; absent: unknown.
	System string `json:"system,omitempty"`
	// Kernel release, as uname -r prints it, and Architecture, as Go names it.
	Kernel       string `json:"kernel"`
	Architecture string `json:"architecture"`
}

// Contents is the content of bundle.json: the data in a bundle, and the data left out.
type Contents struct {
	// Schema is the version of this form.
	Schema string `json:"schema"`
	// Version of allocscope that made the bundle, as it prints it, and the Machine that it ran on,
	// which need not be the machine of the trace.
	Version string  `json:"version"`
	Machine Machine `json:"machine"`
	// NamesKept: no names were replaced.
	NamesKept bool `json:"names_kept"`
	// Replaced is how many names of each sort have a pseudonym, by the word that it begins with.
	Replaced map[string]int `json:"replaced"`
	// Packages and Libraries have their names, and the names of their functions, in the bundle:
	// packages that are not well known first, and libraries by their paths.
	Packages  []string `json:"packages"`
	Libraries []string `json:"libraries"`
	// Files of the bundle, this one excepted.
	Files []string `json:"files"`
	// LeftOut are files of the folder, or parts of them, that are not in the bundle.
	LeftOut []LeftOut `json:"left_out"`
}

// A LeftOut is a file that is not in a bundle, or not all of it.
type LeftOut struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// Write writes a bundle of a folder as a .tar.gz. A file that cannot be read or is damaged is left
// out, and Contents says so. The error comes from w or the context, or says that nothing could be
// read.
func Write(ctx context.Context, w io.Writer, dir *folder.Folder, o Options) (*Contents, error) {
	b := builder{ctx: ctx, dir: dir, options: o, redactor: newRedactor(o.Hide, o.Own)}
	if err := b.learn(); err != nil {
		return nil, err
	}

	compressed := gzip.NewWriter(w)
	b.tar = tar.NewWriter(compressed)
	if err := b.write(); err != nil {
		return nil, err
	}

	if err := b.tar.Close(); err != nil {
		return nil, err
	}

	return &b.contents, compressed.Close()
}

// A builder makes one bundle.
type builder struct {
	ctx      context.Context
	dir      *folder.Folder
	options  Options
	redactor *redactor
	contents Contents
	tar      *tar.Writer
	written  int64
}

// learn reads all files once, so that all public names are known when the files are written.
func (b *builder) learn() error {
	names := b.redactor.names
	// The profiles have the version, too: it is known before they are read.
	_ = b.dir.ReadFile(folder.SummaryFile, func(r io.Reader) error {
		s, err := summary.Read(r)
		if err == nil {
			names.keep(s.Version)
		}
		return err
	})

	profiles, err := b.profiles()
	if err != nil {
		return err
	}

	for _, name := range append(profiles, tables...) {
		_ = b.convert(io.Discard, name) // write reports the error
	}

	_ = b.convert(io.Discard, folder.SummaryFile)
	unknown := names.unknownHidden()
	if b.ctx.Err() == nil && len(unknown) > 0 && !b.options.KeepNames {
		return fmt.Errorf("hide %s: nothing in the trace has this name "+
			"(take one that the command prints without it)", strings.Join(unknown, ", "))
	}

	b.contents = Contents{
		Packages: packagesByRenown(names.packages), Libraries: sortedKeys(names.libraries),
		LeftOut: []LeftOut{},
	}

	return nil
}

var tables = []string{
	folder.TimelineFile, folder.ProcessesFile, folder.GPUsFile, folder.ObjectsFile,
}

// profiles are the names of the profiles that a folder may have.
func (b *builder) profiles() ([]string, error) {
	names := []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile, folder.SpikesFile}
	snapshots, err := b.dir.Snapshots()
	for _, n := range snapshots {
		names = append(names, folder.SnapshotFile(n))
	}

	return names, err
}

func (b *builder) write() error {
	profiles, err := b.profiles()
	if err != nil {
		return err
	}

	for _, name := range slices.Concat([]string{folder.SummaryFile}, tables, profiles) {
		var content bytes.Buffer
		err := b.convert(&content, name)
		switch {
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case errors.Is(err, fs.ErrNotExist) && name != folder.SummaryFile:
			continue
		case err != nil:
			b.leaveOut(name, b.reasonOf(err))
			continue
		}

		modified, err := b.dir.ModTime(name)
		if err != nil {
			return err
		}

		if err := b.add(name, content.Bytes(), modified); err != nil {
			return err
		}
	}

	if err := b.leaveOutGPUSnapshots(); err != nil {
		return err
	}
	return b.writeDocuments()
}

// leaveOutGPUSnapshots names the snapshots of GPU memory, in which no names can be replaced.
func (b *builder) leaveOutGPUSnapshots() error {
	files, err := b.dir.GPUSnapshots()
	for _, name := range files {
		b.leaveOut(name, "it has names of your code, and the profiles have its stacks")
	}
	return err
}

// writeDocuments writes the other documents, and the list of contents.
func (b *builder) writeDocuments() error {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(b.options.Documents)) {
		document := b.options.Documents[name]
		if !b.options.KeepNames {
			b.redactor.document(document)
		}

		if err := b.addJSON(name, document, now); err != nil {
			return err
		}
	}

	c := &b.contents
	c.Schema, c.Version, c.Machine = Schema, b.options.Version, b.options.Machine
	c.NamesKept = b.options.KeepNames
	c.Replaced = b.redactor.names.counts
	return b.addJSON(ContentsFile, c, now)
}

// packagesByRenown returns the packages by name, those first that may be the user's own.
func packagesByRenown(found map[string]bool) []string {
	packages := sortedKeys(found)
	slices.SortStableFunc(packages, func(a, b string) int {
		switch {
		case IsWellKnownPackage(a) == IsWellKnownPackage(b):
			return 0
		case IsWellKnownPackage(b):
			return -1
		}

		return 1
	})

	return packages
}

// IsWellKnownPackage is true of packages of Python that many environments have.
func IsWellKnownPackage(name string) bool {
	return standardLibrary[name] || wellKnownPackages[name]
}

func sortedKeys(found map[string]bool) []string {
	return append([]string{}, slices.Sorted(maps.Keys(found))...)
}

func (b *builder) addJSON(name string, document any, modified time.Time) error {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}

	return b.add(name, content.Bytes(), modified)
}

// add adds a file to the archive. Neither a user nor a host is in its header.
func (b *builder) add(name string, content []byte, modified time.Time) error {
	if b.written += int64(len(content)); b.written > maxBytes {
		b.leaveOut(name, fmt.Sprintf("the bundle would be larger than %d MiB", maxBytes>>20))
		return nil
	}

	err := b.tar.WriteHeader(&tar.Header{
		Name: Name + "/" + name, Mode: 0o600, Size: int64(len(content)),
		ModTime: modified.Truncate(time.Second), Typeflag: tar.TypeReg,
	})

	if err == nil {
		_, err = b.tar.Write(content)
	}

	if err == nil && name != ContentsFile {
		b.contents.Files = append(b.contents.Files, name)
	}

	return err
}

// reasonOf is why a file is left out. An error may quote the file, or name its folder.
func (b *builder) reasonOf(err error) string {
	errno, isErrno := errors.AsType[syscall.Errno](err)
	switch {
	case b.options.KeepNames:
		return err.Error()
	case isErrno:
		return errno.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "it is not there"
	}
	return "it is damaged"
}

func (b *builder) leaveOut(file, reason string) {
	b.contents.LeftOut = append(b.contents.LeftOut, LeftOut{file, reason})
}

// convert writes a file of the folder as it is in the bundle.
func (b *builder) convert(w io.Writer, name string) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}

	return b.dir.ReadFile(name, func(r io.Reader) error {
		switch {
		case name == folder.SummaryFile:
			return b.convertSummary(w, r)
		case slices.Contains(tables, name):
			return b.convertTable(w, r, name)
		}

		return b.convertProfile(w, r)
	})
}

func (b *builder) convertSummary(w io.Writer, r io.Reader) error {
	s, err := summary.Read(r)
	if err != nil {
		return err
	}

	delete(s.Files, "report") // `allocscope report` makes it of the other files
	maps.DeleteFunc(s.Files, func(what, _ string) bool {
		return strings.HasPrefix(what, summary.GPUSnapshot)
	})
	if !b.options.KeepNames {
		b.redactor.summary(s)
	}

	return s.Write(w)
}

func (b *builder) convertTable(w io.Writer, r io.Reader, name string) error {
	bounded := &io.LimitedReader{R: r, N: maxTableBytes}
	leftOut := 0
	var err error
	switch {
	case b.options.KeepNames:
		_, err = io.Copy(w, bounded)
	case name == folder.ObjectsFile:
		leftOut, err = copyObjects(w, bounded, b.redactor.names.typeName)
	default:
		leftOut, err = copyTable(w, bounded)
	}

	if err == nil && leftOut > 0 {
		b.leaveOut(name, fmt.Sprintf("%d lines are damaged", leftOut))
	}

	if err == nil && bounded.N == 0 {
		b.leaveOut(name, fmt.Sprintf("all but its first %d MiB", maxTableBytes>>20))
	}

	return err
}

func (b *builder) convertProfile(w io.Writer, r io.Reader) error {
	p, err := profile.Read(r)
	if err != nil {
		return err
	}

	if !b.options.KeepNames {
		b.redactor.profile(p)
	}

	return p.Write(w)
}
