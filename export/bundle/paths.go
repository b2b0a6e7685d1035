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

var (
	installedFile = regexp.MustCompile(
		`^(.*?)/((?:lib(?:64)?/)?(?:python[0-9][^/]*/)?(?:site|dist)-packages)/([^/]+)(/.*)?$`)
	standardFile = regexp.MustCompile(`^(.*?)/(lib(?:64)?/python[0-9][0-9.]*t?)/([^/]+)(/.*)?$`)
	systemFile   = regexp.MustCompile(
		`^(/usr)?/(lib|lib32|lib64|libx32|libexec|bin|sbin|share)/|^/usr/local/(cuda|nvidia)[^/]*/`)
	frozenFile = regexp.MustCompile(`^<frozen ([A-Za-z0-9_]+)[A-Za-z0-9_.]*>$`)

	// wellKnownFile has the libraries that many environments bring along, wherever they lie.
	wellKnownFile = regexp.MustCompile(`^(` +
		`(libc|libm|libdl|librt|libpthread|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s|` +
		`libpython[0-9.]*[td]?|libjemalloc|libtcmalloc(_minimal)?|libmimalloc|` +
		`libcuda|libcudart|libcublas(Lt)?|libcudnn(_(adv|cnn|ops|graph|heuristic|engines)[_a-z]*)?|` +
		`libcufft|libcurand|libcusolver|libcusparse|libnvrtc|libnvidia-ml|libnccl|` +
		`libtorch(_(cpu|cuda|cuda_linalg|hip|python|global_deps))?|libc10(_(cuda|hip))?|libshm|` +
		`libuc[mpst]|libgomp|libomp|libiomp5|libmkl_(core|rt|[a-z]+_thread|intel_lp64|avx2|avx512|def)|` +
		`libopenblasp?|libffi|libssl|libcrypto|libz|libarrow|libparquet)` +
		`([-.][0-9a-f][-.0-9a-f]*)?\.so(\.[0-9]+)*|` +
		`ld-(linux|musl)[-\w.]*|libc\.musl-\w+\.so\.1|python[0-9.]*[td]?)$`)

	// publicNames are files that the kernel, or a public library, names.
	publicNames = regexp.MustCompile(
		`^/proc/(self|PID|[0-9]+)(/task/[0-9]+)?(/[a-z_]+)?$|^/sys/kernel/[a-z_/]+$|` +
			`^/dev/(zero|null|kfd|dri/\w+|nvidia[-a-z0-9]*|infiniband/uverbs[0-9]+)$|` +
			`^/dev/shm/(torch_|sem\.|psm_|nccl-)\*$|^/SYSV[0-9a-f]{8}$|^/anon_hugepage$`,
	)
)

// topFolders keep their names.
var topFolders = set(`home root tmp var opt usr local lib lib64 bin mnt dev
shm proc run srv conda nix store site-packages dist-packages x86_64-linux-gnu
aarch64-linux-gnu`)

const deleted = " (deleted)" // what the kernel appends to the path of a removed file

// isPublic is true of a file of an installed package, of Python's library or of the system.
func (n *names) isPublic(file string) bool {
	file = withoutDots(strings.TrimSuffix(file, deleted))
	for _, part := range strings.Split(file, "/") {
		if n.isHidden(part) {
			return false
		}
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

	return systemFile.MatchString(file) || wellKnownFile.MatchString(path.Base(file))
}

// path returns a path whose private parts have pseudonyms.
func (n *names) path(file string) string {
	if replaced, ok := n.pseudonyms[file]; ok {
		return replaced
	}

	bare, isDeleted := strings.CutSuffix(file, deleted)
	replaced := n.barePath(withoutDots(bare))
	n.remember(bare, replaced)
	if isDeleted {
		replaced += deleted
		n.remember(file, replaced)
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

func (n *names) barePath(file string) string {
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
	case vocabulary[file]: // one that allocscope reads
		return file
	case !n.isPublic(file):
		return n.folders(path.Dir(file), file) + n.fileName(path.Base(file))
	}

	n.keep(path.Base(file))
	if found := installedFile.FindStringSubmatch(file); found != nil {
		top := strings.TrimSuffix(found[3], path.Ext(found[3]))
		n.list(n.packages, top)
		return n.prefix(found[1]) + "/" + found[2] + "/" + found[3] + found[4]
	}

	if found := standardFile.FindStringSubmatch(file); found != nil {
		return n.prefix(found[1]) + "/" + found[2] + "/" + found[3] + found[4]
	}

	n.list(n.libraries, path.Base(file))
	if systemFile.MatchString(file) || frozenFile.MatchString(file) {
		return file
	}

	return n.folders(path.Dir(file), file) + path.Base(file)
}

// list adds a name to those that are reported.
func (n *names) list(names map[string]bool, name string) {
	if !names[name] && n.hasRoom(name) {
		names[name] = true
	}
}

// prefix returns the folder in which a Python lies.
func (n *names) prefix(folder string) string {
	if folder == "/usr" || folder == "/usr/local" || folder == "" {
		return folder
	}

	return strings.TrimSuffix(n.folders(folder, folder+"/"), "/")
}

// folders returns the folder of a file with a slash at its end; empty for a file without one.
func (n *names) folders(folder, file string) string {
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
		case topFolders[part], i > 0 && parts[i-1] == "proc" && isNumber(part):
		case isCompiler:
			parts[i] = "torchinductor_" + n.replace("user", user)
		case i > 0 && parts[i-1] == "home":
			parts[i] = n.replace("user", part)
		default:
			parts[i] = n.replace("folder", part)
		}
	}

	return strings.Join(parts, "/") + "/"
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
