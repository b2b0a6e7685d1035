package bundle

import (
	"path"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

var (
	quantity = regexp.MustCompile(
		`^[-+~±]?([0-9][0-9.,:]*(ns|us|µs|ms|s|m|h|d|min|B|KiB|MiB|GiB|TiB|[kKMGTx%])?)+$`)
	address    = regexp.MustCompile(`^[0-9]+(\.[0-9]+){3}(:[0-9]+)?$|::`) // of a host
	lineNumber = regexp.MustCompile(`^(.+?)((?::[0-9]+)+)$`)

	// fileRoot matches the roots that have a file in them.
	fileRoot = regexp.MustCompile(`^\[(file|shared memory|copy-on-write): (.+)\]$`)
	// area matches the names of memory below a root.
	area = regexp.MustCompile(`^(anonymous|main heap|heap|arena( 0x[0-9a-f]+)?|mmapped chunks?|` +
		`python arena|thread stack|main stack|generated code|file|shared memory|device|kernel|` +
		`huge pages|allocator|other areas of the allocator|shared anonymous memory)$`)
	// otherRows matches the rows of a breakdown that sum up others.
	otherRows = regexp.MustCompile(`^other (files|arenas|stacks)$`)
)

// separators are between the names of a command line.
const separators = " \t\n()[]{},;\"'“”‘’`|<>="

// root returns the name of memory without an allocation site, such as "[file: /data/x]", or of a
// function whose file is not known.
func (n *pseudonyms) root(text string) string {
	if found := fileRoot.FindStringSubmatch(text); found != nil {
		return "[" + found[1] + ": " + n.rootFile(found[2]) + "]"
	}
	if growth.IsOwnFrame(text) || area.MatchString(text) {
		return text
	}
	return n.function(text, false)
}

// rootFile returns the file or the shared memory of a root.
func (n *pseudonyms) rootFile(name string) string {
	if area.MatchString(name) {
		return name
	}
	if private, isMemfd := strings.CutPrefix(name, "memfd:"); isMemfd {
		return "memfd:" + n.replace("name", private)
	}
	return n.path(name)
}

// frame returns a frame as profile.FrameText writes it: "leak (/home/me/leak.py:12)".
func (n *pseudonyms) frame(text string) string {
	function, file, line := splitFrame(text)
	if file == "" {
		return n.root(text)
	}
	return n.function(function, n.isPublic(file)) + " (" + n.path(file) + line + ")"
}

// splitFrame takes a frame apart. Line begins with its colon, and is empty where there is none, as
// is file.
func splitFrame(text string) (function, file, line string) {
	at := strings.LastIndex(text, " (")
	if bare, isDeleted := strings.CutSuffix(text, deleted+")"); isDeleted {
		at = strings.LastIndex(bare, " (")
	}
	if at < 0 || !strings.HasSuffix(text, ")") {
		return text, "", ""
	}

	file = text[at+2 : len(text)-1]
	if found := lineNumber.FindStringSubmatch(file); found != nil {
		file, line = found[1], found[2]
	}
	return text[:at], file, line
}

// rowName returns the name of a row of a breakdown: a file or a root, the frames below it, or both.
// Whatever is taken for a part, nothing of it remains but public names.
func (n *pseudonyms) rowName(text string) string {
	root, frames, isBelow := strings.Cut(text, ": ")
	switch {
	case otherRows.MatchString(text), isRootText(text):
		return text
	case strings.HasPrefix(text, "["):
		return n.root(text)
	case isRootText(root) && isBelow:
		return root + ": " + n.shortFrames(frames)
	case isRootFile(root) && isBelow:
		return n.rootFile(root) + ": " + n.shortFrames(frames)
	case isRootFile(text) && !strings.Contains(text, " < "):
		return n.rootFile(text)
	}
	return n.shortFrames(text)
}

func isRootFile(text string) bool {
	return strings.HasPrefix(text, "/") || strings.HasPrefix(text, "memfd:")
}

// isRootText reports whether a text is a root without its brackets and its kind.
func isRootText(text string) bool {
	for _, before := range []string{"[", "[heap: ", "[cuda: ", "[gpu: "} {
		if growth.IsOwnFrame(before + text + "]") {
			return true
		}
	}
	return area.MatchString(text)
}

// shortFrames returns frames without folders: "resize (Image.py:2192) < augment (train.py:47)".
func (n *pseudonyms) shortFrames(text string) string {
	var replaced []string
	for frame := range strings.SplitSeq(text, " < ") {
		replaced = append(replaced, n.shortFrame(frame))
	}
	return strings.Join(replaced, " < ")
}

// shortFrame keeps a function that was met in a public file, and in no private one, below a file of
// which the same is true.
func (n *pseudonyms) shortFrame(text string) string {
	function, file, line := splitFrame(text)
	if file == "" {
		return n.root(text)
	}

	isPublic := n.isKnownPublic(file)
	if !isPublic || !n.isKnownPublic(function) {
		function = n.function(function, false)
	}
	if !isPublic && (!isWellKnown(file) || n.isHidden(file)) {
		file = n.fileName(path.Base(file))
	}
	return function + " (" + file + line + ")"
}
