package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeTarball writes the tar.gz of a program. It unpacks to one folder of its name.
func (r *release) writeTarball(p program, files []file) error {
	name := fmt.Sprintf("allocscope-%s-linux-%s", r.version.text, p.target)
	var inFolder []file
	for _, f := range files {
		inFolder = append(inFolder, file{path.Join(name, f.path), f.mode, f.data})
	}

	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(w, inFolder, r.time); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return r.write(name+".tar.gz", compressed.Bytes())
}

// writeTar writes files, sorted, and the folders above them. They belong to root.
func writeTar(out io.Writer, files []file, at time.Time) error {
	w := tar.NewWriter(out)
	known := map[string]bool{".": true}
	var mkdir func(folder string) error
	mkdir = func(folder string) error {
		if known[folder] {
			return nil
		}
		known[folder] = true
		if err := mkdir(path.Dir(folder)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: at, Uname: "root",
			Gname: "root",
		})
	}

	for _, f := range sorted(files) {
		if err := mkdir(path.Dir(f.path)); err != nil {
			return err
		}
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode), Size: int64(len(f.data)),
			ModTime: at, Uname: "root", Gname: "root",
		})
		if err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// sorted returns the files by path.
func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int {
		return strings.Compare(a.path, b.path)
	})
}

// writeSums writes SHA256SUMS, of all files of the release.
func (r *release) writeSums() error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(r.out) // sorted
	if err != nil {
		return err
	}

	var sums strings.Builder
	for _, entry := range entries {
		if entry.Name() == name {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	return r.write(name, []byte(sums.String()))
}
