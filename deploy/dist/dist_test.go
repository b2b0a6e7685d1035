package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var dist = flag.String("dist", "", "`folder` that make dist has made")

// TestDist checks the files with the tools that install them. reproduce runs it.
func TestDist(t *testing.T) {
	if *dist == "" {
		t.Skip("it needs the files of a release: make test-reproducible")
	}
	t.Run("files", testFiles)
	t.Run("program", testProgram)
	t.Run("glibc", testGlibc)
	t.Run("packages", testPackages)
	t.Run("manual", testManual)
	t.Run("licences", testLicences)
	t.Run("install", testInstall)
	t.Run("image", testImage)
}

// output is the output of a program.
func output(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	command := exec.Command(name, arguments...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, out, stderr.String())
	}
	return string(out)
}

// find returns the only file of a pattern.
func find(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q of %s, %v", *dist, found, pattern, err)
	}
	return found[0]
}

// unpack unpacks the tarball of a target, and returns its folder.
func unpack(t *testing.T, target target) string {
	t.Helper()
	folder := t.TempDir()
	path := find(t, "allocscope-*-linux-"+target.String()+".tar.gz")
	output(t, "tar", "-xzf", path, "-C", folder)
	return filepath.Join(folder, strings.TrimSuffix(filepath.Base(path), ".tar.gz"))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write writes a file that may be executed.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// filesBelow returns the files below a folder in it, a line each, sorted.
func filesBelow(t *testing.T, folder, below string) string {
	t.Helper()
	return output(t, "sh", "-c", `cd "$1" && find $2 -type f | sort`, "sh", folder, below)
}

// releaseVersion is the version that the names of the files have.
func releaseVersion(t *testing.T) string {
	t.Helper()
	name := filepath.Base(find(t, "*.cdx.json"))
	return strings.TrimSuffix(strings.TrimPrefix(name, "allocscope-"), ".cdx.json")
}

func testFiles(t *testing.T) {
	const maxBytes = 20_000_000 // of a program, compressed; the image has two
	names := strings.Fields(`allocscope-V-linux-amd64.tar.gz allocscope-V-linux-amd64-static.tar.gz
		allocscope-V-linux-arm64.tar.gz allocscope-V-linux-arm64-static.tar.gz
		allocscope_D_amd64.deb allocscope_D_arm64.deb allocscope-D-1.x86_64.rpm
		allocscope-D-1.aarch64.rpm allocscope-W-py3-none-manylinux_2_G_x86_64.whl
		allocscope-W-py3-none-manylinux_2_G_aarch64.whl
		allocscope-W-py3-none-musllinux_1_1_x86_64.whl
		allocscope-W-py3-none-musllinux_1_1_aarch64.whl allocscope-V-image.tar
		allocscope-V.cdx.json SHA256SUMS`)

	version := releaseVersion(t)
	var r release
	if err := r.setVersion(version); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		pattern := strings.NewReplacer("V", version, "D", r.version.debian, "W", r.version.wheel,
			"SHA256SUMS", "SHA256SUMS", "_G_", "_*_").Replace(name)
		path := find(t, pattern)
		names[i] = filepath.Base(path)

		limit := int64(maxBytes)
		if strings.HasSuffix(name, "-image.tar") {
			limit *= 2
		}
		if info, err := os.Stat(path); err != nil || info.Size() > limit {
			t.Errorf("%s has %d bytes, %v", name, info.Size(), err)
		}
	}

	entries, err := os.ReadDir(*dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(names, entry.Name()) {
			t.Errorf("%s is not expected", entry.Name())
		}
	}

	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = *dist
	out, err := check.CombinedOutput()
	if lines := strings.Count(string(out), ": OK\n"); err != nil || lines != len(names)-1 {
		t.Errorf("%v: %s", err, out)
	}
}

// testProgram reads the programs of the tarballs, and runs the programs of this machine.
func testProgram(t *testing.T) {
	for _, target := range targets {
		t.Run(target.String(), func(t *testing.T) {
			folder := unpack(t, target)
			path := filepath.Join(folder, "allocscope")

			machine := map[string]string{"amd64": "X86-64", "arm64": "AArch64"}[target.arch]
			if header := output(t, "readelf", "-h", path); !strings.Contains(header, machine) {
				t.Errorf("it is of another machine:\n%s", header)
			}
			sections := output(t, "readelf", "-S", "-W", path)
			if strings.Contains(sections, ".symtab") || strings.Contains(sections, ".debug_") {
				t.Errorf("it is not stripped:\n%s", sections)
			}
			if isDynamic := strings.Contains(sections, ".dynamic"); isDynamic == target.isStatic {
				t.Errorf("dynamic: %t", isDynamic)
			}

			// Nothing of the machine that has built it.
			program := read(t, path)
			cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
			for _, text := range []string{filepath.Dir(filepath.Dir(*dist)), cache} {
				if filepath.IsAbs(text) && strings.Contains(program, text) {
					t.Errorf("it has the text %s", text)
				}
			}

			if target.arch != runtime.GOARCH {
				return
			}
			want := ", with NVML\n"
			if target.isStatic {
				want = ", without NVML (static build)\n"
			}
			said := output(t, path, "version")
			if !strings.HasPrefix(said, "allocscope "+releaseVersion(t)+" (commit ") ||
				!strings.HasSuffix(said, want) {
				t.Errorf("it says %s", said)
			}
		})
	}
}

// testGlibc compares the glibc that packages ask for with the symbols that their program imports.
func testGlibc(t *testing.T) {
	for _, target := range targets {
		if target.isStatic {
			continue
		}
		imports := output(t, "readelf", "-V", "-W", filepath.Join(unpack(t, target), "allocscope"))
		newest := ""
		for _, m := range regexp.MustCompile(`Name: GLIBC_(\S+)`).FindAllStringSubmatch(imports, -1) {
			if newest == "" || output(t, "sh", "-c",
				"printf '%s\\n' "+newest+" "+m[1]+" | sort -V | tail -n 1") == m[1]+"\n" {
				newest = m[1]
			}
		}

		tag := "manylinux_" + strings.ReplaceAll(newest, ".", "_") + "_" + target.machine
		find(t, "*-"+tag+".whl")
		deb := output(t, "dpkg-deb", "-f", find(t, "*_"+target.arch+".deb"), "Depends")
		if deb != "libc6 (>= "+newest+")\n" {
			t.Errorf("%s: it needs %s, the .deb %s", target, newest, deb)
		}
		guide := read(t, "../../docs/guides/install.md")
		if !strings.Contains(guide, "| glibc "+newest+" or newer: ") {
			t.Errorf("%s: it needs glibc %s, which docs/guides/install.md does not say", target,
				newest)
		}
		rpm := output(t, "rpm", "-qp", "--requires", find(t, "*."+target.machine+".rpm"))
		if !strings.Contains(rpm, "libc.so.6(GLIBC_"+newest+")(64bit)\n") {
			t.Errorf("%s: it needs %s, the .rpm %s", target, newest, rpm)
		}
	}
}

// testPackages checks that all packages of a target have the same program and documents.
func testPackages(t *testing.T) {
	for _, target := range targets {
		t.Run(target.String(), func(t *testing.T) {
			tarball, root := unpack(t, target), t.TempDir()
			same := func(inTarball, path string) {
				t.Helper()
				if read(t, filepath.Join(tarball, inTarball)) != read(t, path) {
					t.Errorf("%s differs from that of the tarball", path)
				}
			}

			libc := "-manylinux_"
			if target.isStatic {
				libc = "-musllinux_"
			}
			output(t, "python3", "-c", unpackWheel, find(t, "*"+libc+"*"+target.machine+".whl"), root)
			same("allocscope", filepath.Join(root, "allocscope"))
			if target.isStatic {
				return
			}

			deb, rpm := filepath.Join(root, "deb"), filepath.Join(root, "rpm")
			output(t, "dpkg-deb", "-x", find(t, "*_"+target.arch+".deb"), deb)
			output(t, "sh", "-c", `mkdir "$2" && rpm2cpio "$1" | (cd "$2" && cpio -i -d --quiet --no-absolute-filenames 2>/dev/null)`, "sh",
				find(t, "*."+target.machine+".rpm"), rpm)
			for _, folder := range []string{deb, rpm} {
				same("allocscope", filepath.Join(folder, "usr/bin/allocscope"))
				same("LICENSE", filepath.Join(folder, "usr/share/doc/allocscope/copyright"))
				for _, name := range []string{"THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md"} {
					same(name, filepath.Join(folder, "usr/share/doc/allocscope", name))
				}
				installed := filesBelow(t, filepath.Join(folder, "usr/share"), "[a-c]* [e-z]*")
				want := filesBelow(t, filepath.Join(tarball, "share"), "*")
				if folder == deb {
					want = strings.ReplaceAll(want, "zsh/site-functions/", "zsh/vendor-completions/")
				}
				if installed != want || strings.Count(want, "man/man1/allocscope") < 15 {
					t.Errorf("%s has below share\n%s, want\n%s", folder, installed, want)
				}
				output(t, "test", "-x", filepath.Join(folder, "usr/bin/allocscope"))
				output(t, "test", "-e", filepath.Join(folder, "usr/lib/systemd/system/allocscope-agent.service"))
				output(t, "test", "-e", filepath.Join(folder, "usr/lib/sysusers.d/allocscope.conf"))
			}
			owners := output(t, "dpkg-deb", "-c", find(t, "*_"+target.arch+".deb"))
			if strings.Count(owners, " root/root ") != strings.Count(owners, "\n") {
				t.Errorf("not all files belong to root:\n%s", owners)
			}
		})
	}
}

// unpackWheel checks the wheel argv[1] by its RECORD, and copies its script to argv[2].
const unpackWheel = `
import base64, csv, hashlib, io, os, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
record, = [n for n in wheel.namelist() if n.endswith(".dist-info/RECORD")]
rows = {row[0]: row for row in csv.reader(io.TextIOWrapper(wheel.open(record)))}
assert sorted(rows) == sorted(wheel.namelist()), rows
for name, digest, size in rows.values():
    data = wheel.read(name)
    want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert name == record or (digest, size) == ("sha256=" + want, str(len(data))), name
info = record.removesuffix("/RECORD")
name = os.path.basename(sys.argv[1])
assert name.startswith(info.removesuffix(".dist-info") + "-"), (name, info)
metadata = wheel.read(info + "/METADATA").decode()
assert "\nVersion: " + name.split("-")[1] + "\n" in metadata, metadata
tag = name.removesuffix(".whl").split("-", 2)[2]
assert "\nTag: " + tag + "\n" in wheel.read(info + "/WHEEL").decode(), tag
script, = [n for n in wheel.namelist() if n.endswith(".data/scripts/allocscope")]
assert wheel.getinfo(script).external_attr >> 16 & 0o777 == 0o755
open(os.path.join(sys.argv[2], "allocscope"), "wb").write(wheel.read(script))
`

// testManual formats the pages: groff warns of requests that it does not understand.
func testManual(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(unpack(t, targets[0]), "share/man/man1/*.1"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("there are %q, %v", pages, err)
	}
	for _, page := range pages {
		usage := "SYNOPSIS\n"
		if filepath.Base(page) == "allocscope.1" {
			usage += "       allocscope agent [flags]\n" // the first command
		}
		groff := exec.Command("groff", "-man", "-Tutf8", "-P-cbou", "-ww", page)
		var warnings bytes.Buffer
		groff.Stderr = &warnings
		text, err := groff.Output()
		if err != nil || warnings.Len() > 0 || !bytes.Contains(text, []byte("\n"+usage)) {
			t.Errorf("%s: %v, %s", page, err, warnings.String())
		}
	}
}

// testLicences compares the licences and the SBOM with the modules that the program says it has.
func testLicences(t *testing.T) {
	folder := unpack(t, targets[0])
	licences := read(t, filepath.Join(folder, "THIRD_PARTY_LICENSES"))

	var bom struct {
		Metadata   struct{ Timestamp string }
		Components []struct{ PURL string }
	}
	if err := json.Unmarshal([]byte(read(t, find(t, "*.cdx.json"))), &bom); err != nil {
		t.Fatal(err)
	}
	hasPart := func(url string) bool {
		return slices.ContainsFunc(bom.Components, func(c struct{ PURL string }) bool {
			return strings.HasPrefix(c.PURL, url)
		})
	}

	count := 0
	info := output(t, "go", "version", "-m", filepath.Join(folder, "allocscope"))
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(info, -1) {
		count++
		if !strings.Contains(licences, "\n"+m[1]+" "+m[2]+"\n") {
			t.Errorf("no licence of %s %s", m[1], m[2])
		}
		if !hasPart("pkg:golang/" + m[1] + "@" + m[2]) {
			t.Errorf("the SBOM has no %s %s", m[1], m[2])
		}
	}
	if count < 30 {
		t.Errorf("the program has %d modules", count)
	}

	for _, name := range []string{"uplot", "d3-flame-graph", "d3-selection"} {
		if !strings.Contains(licences, "\n"+name+" ") || !hasPart("pkg:npm/"+name+"@") {
			t.Errorf("%s is missing", name)
		}
	}
	for _, words := range []string{
		"Copyright 2009 The Go Authors", "Valid-License-Identifier: BSD-2-Clause", "Leon Sorokin",
		"Mike Bostock",
	} {
		if !strings.Contains(licences, words) {
			t.Errorf("the licences do not have %q", words)
		}
	}
}

// testInstall installs from source, and removes the installed files.
func testInstall(t *testing.T) {
	folder := t.TempDir()
	install := []string{"-C", "../..", "PREFIX=/opt/allocscope", "DESTDIR=" + folder}
	output(t, "make", append(install, "install")...)

	prefix := filepath.Join(folder, "opt/allocscope")
	if said := output(t, prefix+"/bin/allocscope", "version"); !strings.HasPrefix(said, "allocscope ") {
		t.Errorf("it says %s", said)
	}
	installed := filesBelow(t, filepath.Join(prefix, "share"), "*")
	want := filesBelow(t, filepath.Join(unpack(t, targets[0]), "share"), "*")
	if installed != want {
		t.Errorf("make install has below share\n%s, the tarball\n%s", installed, want)
	}

	output(t, "make", append(install, "uninstall")...)
	if left := output(t, "find", folder, "-type", "f"); left != "" {
		t.Errorf("make uninstall leaves\n%s", left)
	}
}

// testImage checks the digests of the image, and runs it.
func testImage(t *testing.T) {
	folder, path := t.TempDir(), find(t, "*-image.tar")
	output(t, "tar", "-xf", path, "-C", folder)
	blobs, err := filepath.Glob(filepath.Join(folder, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	platforms := 0
	for _, blob := range blobs {
		text := read(t, blob)
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); sum != filepath.Base(blob) {
			t.Errorf("%s has the digest %s", blob, sum)
		}
		if strings.HasPrefix(text, "{") && strings.Contains(text, `"platform"`) {
			platforms += strings.Count(text, `"architecture"`)
		}
	}
	if platforms != 2 {
		t.Errorf("it is for %d architectures", platforms)
	}

	image := "ghcr.io/allocscope/allocscope:" + releaseVersion(t)
	output(t, "podman", "pull", "--quiet", "oci-archive:"+path)
	t.Cleanup(func() { output(t, "podman", "rmi", "--force", image) })
	said := output(t, "podman", "--runtime=runc", "run", "--rm", "--pull=never", "--network=none",
		"--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", image, "version")
	if !strings.Contains(said, "allocscope "+releaseVersion(t)+" ") ||
		!strings.HasSuffix(said, "without NVML (static build)\n") {
		t.Errorf("it says %s", said)
	}
}
