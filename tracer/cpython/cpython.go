// Package cpython has what CPython lays out in memory: where the members of its structures lie in
// each version, one file a version, and the forms of its dicts. It reads no process. Builds are
// 64-bit release builds. Names follow the CPython sources.
package cpython

import "fmt"

// A Version is a minor version of CPython 3. All its releases have these offsets, in bytes.
//
// The file of the oldest version names every field, so that a forgotten one cannot pass for the
// offset 0. The file of each later one has the changes since the version before.
type Version struct {
	Minor int // of Python 3
	// FirstExport is a function that this version was the first to export. It separates the versions
	// whose files do not export Py_Version; empty from 3.11 on.
	FirstExport string

	Frames
	CodeLayout
	Structures

	// DebugOffsets are the positions in _Py_DebugOffsets; nil before 3.13, which has none.
	DebugOffsets *DebugOffsets
}

const (
	// Absent is the offset of a member that the version does not have. No process has memory there.
	Absent = 1 << 62
	// Published is the offset of a member that the interpreter shows in _Py_DebugOffsets: it
	// depends on the release or the build.
	Published = 1<<62 + 1
)

// with returns a copy of the version, changed.
func (v Version) with(change func(*Version)) Version {
	change(&v)
	return v
}

// versions holds the known versions, oldest first, without a gap.
var versions = []*Version{&v38, &v39, &v310, &v311, &v312, &v313, &v314, &v315}

// Supported names the known versions: "3.8 to 3.15".
var Supported = fmt.Sprintf("3.%d to 3.%d", versions[0].Minor, versions[len(versions)-1].Minor)

// Find returns a minor version of CPython 3. It is an UnknownError if nothing is known of it.
func Find(minor int) (*Version, error) {
	for _, v := range versions {
		if v.Minor == minor {
			return v, nil
		}
	}
	return nil, UnknownError(fmt.Sprintf("CPython 3.%d", minor))
}

// FindByExports returns the version of an interpreter whose file does not export Py_Version, by the
// functions that it exports.
func FindByExports(exports func(name string) bool) (*Version, error) {
	for i := len(versions) - 1; i >= 0; i-- {
		if name := versions[i].FirstExport; name != "" && exports(name) {
			return versions[i], nil
		}
	}
	return nil, UnknownError("CPython 3.7")
}

// An UnknownError names an interpreter whose offsets are not known.
type UnknownError string

func (e UnknownError) Error() string {
	return fmt.Sprintf("%s (CPython %s are supported)", string(e), Supported)
}
