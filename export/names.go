package export

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The files of a trace's folder, besides those of SnapshotFile.
const (
	SummaryFile   = "summary.json"
	TimelineFile  = "timeline.csv"
	ProcessesFile = "processes.csv"
	GPUsFile      = "gpus.csv" // of traces that saw a GPU alone
	GrowthFile    = "growth.pb.gz"
	WarmupFile    = "warmup.pb.gz"
	PlateauFile   = "plateau.pb.gz"
	ReportFile    = "report.html"
)

const snapshotDir = "snapshots"

var (
	fileNames    = []string{SummaryFile, TimelineFile, ProcessesFile, GPUsFile, GrowthFile, WarmupFile, PlateauFile, ReportFile}
	snapshotName = regexp.MustCompile(`^[0-9]{3,}\.pb\.gz$`)
)

// SnapshotFile is the name of the n-th snapshot in the folder: "snapshots/003.pb.gz" for 3.
func SnapshotFile(n int) string { return fmt.Sprintf("%s/%03d.pb.gz", snapshotDir, n) }

// splitName separates the directory ("." or "snapshots") from the file. Only names that are removed when the folder is
// replaced are taken, so that allocscope never leaves a file behind that it would not know again.
func splitName(name string) (dir, base string, err error) {
	if slices.Contains(fileNames, name) {
		return ".", name, nil
	}
	dir, base, _ = strings.Cut(name, "/")
	if dir == snapshotDir && snapshotName.MatchString(base) {
		return dir, base, nil
	}
	return "", "", errors.New("not the name of a file of a trace's folder")
}

// temporaryName is where a file is written before it is renamed into place.
func temporaryName(base string) string { return "." + base + ".tmp" }
