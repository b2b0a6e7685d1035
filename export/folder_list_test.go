package export

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSnapshotsAreListedInOrderAndNothingElseIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	folder, err := CreateFolder(path, current(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if got, err := folder.Snapshots(); err != nil || len(got) != 0 {
		t.Errorf("of a folder without any: %v, %v", got, err)
	}
	if err := os.Mkdir(filepath.Join(path, "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"1000.pb.gz", "010.pb.gz", "002.pb.gz", // and these are none:
		"0010.pb.gz", "3.pb.gz", "-04.pb.gz", "005.pb", ".006.pb.gz.tmp", "x07.pb.gz", "00000000000000000000000.pb.gz", "99999999999999999999.pb.gz",
	} {
		if err := os.WriteFile(filepath.Join(path, "snapshots", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := folder.Snapshots(); err != nil || !slices.Equal(got, []int{2, 10, 1000}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSnapshotsAreNotListedThroughALink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	folder, err := CreateFolder(path, current(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := os.Symlink("/tmp", filepath.Join(path, "snapshots")); err != nil {
		t.Fatal(err)
	}
	_, err = folder.Snapshots()
	wantError(t, err, "list snapshots", "symbolic link")
}
