// Package distribution knows which package of a Linux distribution has the debug symbols of a file,
// by the data of the package managers.
//
// The data are in the root directory of a traced process, and are hostile input: the reads are
// bounded, and a package that has an impossible name is none.
package distribution

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// Limits on the work that a root directory can cause. Debian's desktop has 3,000 packages, whose
// lists have 30 MiB.
const (
	maxPackages      = 1 << 15
	maxDatabaseBytes = 64 << 20
	maxListBytes     = 8 << 20
	maxAllListBytes  = 256 << 20
	maxReleaseBytes  = 1 << 16
)

// FindDebug returns the package with the symbols of a file, at its path in a root directory. It is
// empty where no known distribution has installed the file.
func FindDebug(root, file string) growth.DebugPackage {
	if !ofDistribution.MatchString(file) {
		return growth.DebugPackage{}
	}

	bare := withoutUsr(path.Clean(file))
	if name := findDpkg(root, bare); name != "" {
		return growth.DebugPackage{Manager: growth.ManagerApt, Name: debianDebug(name)}
	}
	if origin := findApk(root, bare); origin != "" {
		return growth.DebugPackage{Manager: growth.ManagerApk, Name: origin + "-dbg"}
	}
	return growth.DebugPackage{Manager: rpmManager(root)}
}

var (
	// ofDistribution matches the folders that belong to a distribution alone.
	ofDistribution = regexp.MustCompile(`^/(usr/)?(lib(32|64|x32|exec)?|s?bin|games)/`)
	// packageName matches names of packages and architectures.
	packageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}$`)
)

// withoutUsr makes paths equal that differ in /usr alone: /lib is a link to /usr/lib today, and the
// lists of packages may have either.
func withoutUsr(file string) string { return strings.TrimPrefix(file, "/usr") }

// findDpkg returns the package that has a file, by the lists of files that dpkg keeps
// (dpkg-query(1), FILES); empty: there is none. The packages that are named like the file come
// first.
func findDpkg(root, bare string) (name string) {
	const folder = "/var/lib/dpkg/"
	packages := dpkgPackages(root, folder+"status")
	likeness := func(name string) (same int) {
		base := path.Base(bare)
		for same < min(len(base), len(name)) && base[same] == name[same] {
			same++
		}
		return same
	}
	slices.SortStableFunc(packages, func(a, b string) int {
		return cmp.Compare(likeness(b), likeness(a))
	})

	left := maxAllListBytes
	for _, name := range packages {
		files, err := readIn(root, folder+"info/"+name+".list", min(left, maxListBytes))
		left -= len(files)
		if errors.Is(err, hostile.ErrStalled) || left <= 0 {
			return ""
		}

		for _, usr := range []string{"", "/usr"} {
			if bytes.Contains(files, []byte("\n"+usr+bare+"\n")) {
				name, _, _ := strings.Cut(name, ":")
				return name
			}
		}
	}
	return ""
}

// dpkgPackages reads the names of packages, as their lists have them, from dpkg's database:
// paragraphs of fields (deb-control(5)).
func dpkgPackages(root, file string) (names []string) {
	var name, machine string
	eachLine(root, file, func(line string) bool {
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case field == "Package":
			name, machine = value, ""
		case field == "Architecture" && packageName.MatchString(name) && packageName.MatchString(value):
			machine = value
			names = append(names, name)
		case field == "Multi-Arch" && value == "same" && machine != "":
			names[len(names)-1] = name + ":" + machine
		}
		return len(names) < maxPackages
	})

	return names
}

// ofOwnDebug matches the packages of Debian whose symbols are in a package NAME-dbg, and the NAME.
var ofOwnDebug = regexp.MustCompile(`^(libc6$|(lib)?python3\.[0-9]+|openjdk-[0-9]+)`)

// debianDebug is the package with the symbols of another. debhelper names most.
func debianDebug(name string) string {
	m := ofOwnDebug.FindStringSubmatch(name)
	switch {
	case m == nil:
		return name + "-dbgsym"
	case m[2] != "": // the symbols of libpython are there, too
		return strings.TrimPrefix(m[1], m[2]) + "-dbg"
	}
	return m[1] + "-dbg"
}

// findApk returns the origin of the package that has a file, which gives its debug package the name,
// by the database of apk (https://wiki.alpinelinux.org/wiki/Apk_spec); empty: there is none.
func findApk(root, bare string) (origin string) {
	folder, base := path.Split(strings.TrimPrefix(bare, "/"))
	folder = strings.TrimSuffix(folder, "/")
	of, isFolder, found := "", false, ""

	for _, database := range []string{"/lib/apk/db/installed", "/usr/lib/apk/db/installed"} {
		eachLine(root, database, func(line string) bool {
			field, value, _ := strings.Cut(line, ":")
			switch {
			case line == "":
				of, isFolder = "", false
			case field == "P" && of == "", field == "o":
				of = value
			case field == "F":
				isFolder = strings.TrimPrefix(value, "usr/") == folder
			case field == "R" && isFolder && value == base && packageName.MatchString(of):
				found = of
			}

			return found == ""
		})
	}
	return found
}

// rpmManager is the package manager of a distribution with rpm, whose database is not read; empty:
// it is another one.
func rpmManager(root string) (manager growth.PackageManager) {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		raw, err := readIn(root, file, maxReleaseBytes)
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(raw)) { // os-release(5)
			field, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if field != "ID" && field != "ID_LIKE" {
				continue
			}

			for _, id := range strings.Fields(strings.Trim(value, `"'`)) {
				switch {
				case id == "fedora" || id == "rhel" || id == "centos":
					return growth.ManagerDnf
				case id == "suse" || strings.HasPrefix(id, "opensuse") || id == "sles":
					return growth.ManagerZypper
				}
			}
		}
		return ""
	}

	return ""
}

// readIn reads a file in a root directory, up to a limit of bytes.
func readIn(root, file string, limit int) ([]byte, error) {
	f, err := hostile.OpenInRoot(root, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadAll(limit)
}

// eachLine visits the lines of a file in a root directory, none if it cannot be read, while visit
// returns true.
func eachLine(root, file string, visit func(line string) bool) {
	f, err := hostile.OpenInRoot(root, file)
	if err != nil {
		return
	}
	defer f.Close()

	lines := bufio.NewScanner(io.NewSectionReader(f, 0, min(f.Size(), maxDatabaseBytes)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && visit(lines.Text()) {
	}
}
