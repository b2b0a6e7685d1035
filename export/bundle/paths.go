package bundle

import (
	_ "embed"
	"path"
	"regexp"
	"strings"
)

//go:embed stdlib.txt
var standardLibraryText string

// standardLibrary has the modules at the top of Python's library, by sys.stdlib_module_names.
var standardLibrary = set(standardLibraryText)

// librariesText has the libraries that Debian 12 has packages of: their names up to the version.
//
//go:embed libraries.txt
var librariesText string

var libraryNames = set(librariesText)

var (
	installedFile = regexp.MustCompile(`^(.*?)/((?:lib(?:64)?/)?(?:python[0-9][0-9.]*t?/)?` +
		`(?:site|dist)-packages)/([^/\s]+)(/\S*)?$`)
	standardFile = regexp.MustCompile(
		`^(.*?)/(lib(?:64)?/python[0-9][0-9.]*t?)/([^/\s]+)(/\S*)?$`)
	frozenFile = regexp.MustCompile(`^<frozen ([A-Za-z0-9_]+)[A-Za-z0-9_.]*>$`)

	libraryVersion = regexp.MustCompile(`([-.][0-9a-f][-.0-9a-f]*)?\.so(\.[0-9]+)*$`)

	// otherLibrary and otherFile are files that many environments bring along, besides the ones of
	// Debian.
	otherLibrary = regexp.MustCompile(`^(libpython[0-9.]*[td]?|libcuda|libcudart|libcublas(Lt)?|` +
		`libcudnn(_(adv|cnn|ops|graph|heuristic|engines)[_a-z]*)?|` +
		`libcufft|libcurand|libcusolver|libcusparse|libnvrtc|libnvidia-ml|libnccl|` +
		`libtorch(_(cpu|cuda|cuda_linalg|hip|python|global_deps))?|libc10(_(cuda|hip))?|` +
		`libuc[mpst]|libomp|libiomp5|libc\+\+|libc\+\+abi|` +
		`libmkl_(core|rt|[a-z]+_thread|intel_lp64|avx2|avx512|def)|libopenblasp?|libparquet)$`)
	otherFile = regexp.MustCompile(`^(ld-(linux|musl)[-\w.]*|libc\.musl-\w+\.so\.1|` +
		`python[0-9.]*[td]?|bash|dash|sh|locale-archive|LC_[A-Z]+|gconv-modules\.cache)$`)

	// publicNames are files that the kernel, or a public library, names.
	publicNames = regexp.MustCompile(
		`^/proc/(self|PID|[0-9]+)(/task/[0-9]+)?(/[a-z_]+)?$|^/sys/kernel/[a-z_/]+$|` +
			`^/dev/(zero|null|kfd|dri/\w+|nvidia[-a-z0-9]*|infiniband/uverbs[0-9]+)$|` +
			`^/dev/shm/(torch_|sem\.|psm_|nccl-)\*$|^/SYSV[0-9a-f]{8}$|^/anon_hugepage$`,
	)
)

// knownFolders keep their names, and so do the folders of CUDA.
var knownFolders = set(`home root tmp var opt usr local lib lib32 lib64 libx32 libexec bin sbin
share mnt dev shm proc run srv conda nix store site-packages dist-packages x86_64-linux-gnu
aarch64-linux-gnu x86_64-linux sbsa-linux targets nvidia cuda locale gconv`)

var cudaFolder = regexp.MustCompile(`^cuda-[0-9]+(\.[0-9]+)*$`)

const deleted = " (deleted)" // the kernel appends it to the path of a removed file

// isPublic is true of a file of an installed package, of Python's library, and of a well-known one.
func (n *pseudonyms) isPublic(file string) bool {
	file = withoutDots(strings.TrimSuffix(file, deleted))
	isHidden := false
	for part := range strings.SplitSeq(file, "/") {
		isHidden = n.isHidden(part) || isHidden // each of them counts as found
	}

	if isHidden {
		return false
	}

	if found := installedFile.FindStringSubmatch(file); found != nil {
		return true
	}

	if found := standardFile.FindStringSubmatch(file); found != nil {
		return standardLibrary[strings.TrimSuffix(found[3], ".py")]
	}

	if found := frozenFile.FindStringSubmatch(file); found != nil {
		return standardLibrary[found[1]]
	}

	return isWellKnown(path.Base(file))
}

// isWellKnown is true of the names of files that many environments have, wherever they lie.
func isWellKnown(file string) bool {
	if otherFile.MatchString(file) {
		return true
	}

	version := libraryVersion.FindString(file)
	library := strings.TrimSuffix(file, version)
	return version != "" && (libraryNames[library] || otherLibrary.MatchString(library))
}

// path returns a path whose private parts have pseudonyms.
func (n *pseudonyms) path(file string) string {
	bare, isDeleted := strings.CutSuffix(file, deleted)
	replaced := n.barePath(withoutDots(bare))
	if isDeleted {
		replaced += deleted
	}

	return replaced
}

// withoutDots resolves "..": a path may begin in a folder of the system and lead elsewhere.
func withoutDots(file string) string {
	if strings.Contains(file, "..") && !strings.HasPrefix(file, "[") && !strings.HasPrefix(file, "<") {
		return path.Clean(file)
	}
	return file
}

func (n *pseudonyms) barePath(file string) string {
	switch name, isMemfd := strings.CutPrefix(file, "/memfd:"); {
	case isMemfd:
		return "/memfd:" + n.replace("name", name)
	case file == "", publicNames.MatchString(file), file == "<string>", file == "<stdin>":
		return file
	case strings.HasPrefix(file, "["):
		return n.root(file)
	case strings.HasPrefix(file, "<"):
		if n.isPublic(file) {
			return file
		}

		return "<" + n.replace("name", file) + ">"
	case !n.isPublic(file):
		return n.folders(path.Dir(file), file) + n.fileName(path.Base(file))
	}

	n.keep(path.Base(file))
	if found := installedFile.FindStringSubmatch(file); found != nil {
		n.list(n.packages, topName(found[3]))
		return n.prefix(found[1]) + "/" + found[2] + "/" + found[3] + found[4]
	}

	if found := standardFile.FindStringSubmatch(file); found != nil {
		return n.prefix(found[1]) + "/" + found[2] + "/" + found[3] + found[4]
	}

	replaced := n.folders(path.Dir(file), file) + path.Base(file)
	n.list(n.libraries, replaced)
	return replaced
}

// prefix returns the folder in which a Python lies.
func (n *pseudonyms) prefix(folder string) string {
	if folder == "/usr" || folder == "/usr/local" || folder == "" {
		return folder
	}

	return strings.TrimSuffix(n.folders(folder, folder+"/"), "/")
}

// folders returns the folder of a file with a slash at its end; empty for a file without one.
func (n *pseudonyms) folders(folder, file string) string {
	if !strings.Contains(file, "/") {
		return ""
	}

	if folder == "/" {
		return "/"
	}

	parts := strings.Split(folder, "/")
	for i, part := range parts {
		user, isCompiler := strings.CutPrefix(part, "torchinductor_")
		switch {
		case part == "", part == ".", part == "..":
		case i > 0 && parts[i-1] == "home":
			parts[i] = n.replace("user", part)
		case knownFolders[part], cudaFolder.MatchString(part):
		case i > 0 && parts[i-1] == "proc" && isNumber(part):
		case isCompiler:
			parts[i] = "torchinductor_" + n.replace("user", user)
		default:
			parts[i] = n.replace("folder", part)
		}
	}

	return strings.Join(parts, "/") + "/"
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
