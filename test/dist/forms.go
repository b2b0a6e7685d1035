package main

import "strings"

// removeCache removes the tables of traces, where no script of a package does so.
const removeCache = "; rm -r /var/cache/allocscope-tables"

// casesFor returns the cases that install a file of dist/, none for a file that is only checked;
// nil if the name is not known.
func casesFor(file string) []testCase {
	has := func(suffix string) bool { return strings.HasSuffix(file, suffix) }
	name := strings.TrimSuffix(file, ".tar.gz")

	switch {
	case has("_amd64.deb"):
		return inDistributions(testCase{
			form: "deb", file: file, hasDemo: true,
			// The agent waits until somebody enables it.
			install: "dpkg -i $FILE; test -z \"$(find /etc -name '*allocscope*.service')\"",
			program: "allocscope",
			remove:  "dpkg --purge allocscope",
			// Files that dpkg writes, and the copies that userdel makes of files that it changes.
			kept: []string{
				"/var/lib/dpkg", "/var/log/dpkg.log", "/etc/passwd-", "/etc/group-", "/etc/shadow-",
				"/etc/gshadow-",
			},
		})
	case has("_x86_64.whl") && strings.Contains(file, "manylinux"):
		return inDistributions(testCase{
			form: "wheel", file: file,
			prepare: "python3 -m venv /opt/venv",
			install: "/opt/venv/bin/pip install --no-index $FILE",
			program: "/opt/venv/bin/allocscope",
			remove:  "/opt/venv/bin/pip uninstall -y allocscope" + removeCache,
		})
	case has("-linux-amd64.tar.gz"):
		return inDistributions(testCase{
			form: "tar", file: file,
			install: "tar -C /opt -xf $FILE",
			program: "/opt/" + name + "/allocscope",
			remove:  "rm -r /opt/" + name + removeCache,
		})
	case has(".x86_64.rpm"):
		return []testCase{rpmCase(file)}
	case has("-linux-amd64-static.tar.gz"):
		return []testCase{{
			root: "musl", form: "tar", file: file,
			install: "mkdir /opt; tar -C /opt -xzf $FILE",
			program: "/opt/" + name + "/allocscope",
			remove:  "rm -r /opt",
			leaks:   []leak{nativeLeak},
		}}
	case has("_x86_64.whl") && strings.Contains(file, "musllinux"):
		return musllinuxCases(file)
	case has("-image.tar"):
		return []testCase{{root: "container", form: "image", file: file, leaks: []leak{listLeak}}}
	case has("_arm64.deb"), has(".aarch64.rpm"), has("_aarch64.whl"), has("-linux-arm64.tar.gz"),
		has("-linux-arm64-static.tar.gz"):
		return []testCase{{root: "emulated", form: "arm64", file: file}}
	case has(".cdx.json"), file == "SHA256SUMS": // `run` compares the sums
		return []testCase{}
	}
	return nil
}

// inDistributions returns the case in each distribution. The packages trace all programs, other
// forms one.
func inDistributions(c testCase) (cases []testCase) {
	for _, d := range distributions {
		c.root, c.leaks = d.name, []leak{listLeak}
		if c.hasDemo && d.hasTorch {
			c.leaks = append(c.leaks, tensorLeak)
		}
		cases = append(cases, c)
	}
	return cases
}

// rpmCase installs the package beside the files of Debian 13. rpm works on the root from outside,
// as Fedora's installer does. It learns of the C library there by an empty package, which provides
// the names that Fedora's glibc provides.
func rpmCase(file string) testCase {
	return testCase{
		root: "debian-13", form: "rpm", file: file, outside: true,
		prepare: `rpmbuild -bb --quiet -D "_topdir $ROOT/tmp/rpm" -D "_build_id_links none" \
				test/dist/programs/glibc.spec
			rpm --root $ROOT --initdb
			rpm --root $ROOT -i $ROOT/tmp/rpm/RPMS/*/*.rpm`,
		install: `rpm -K --nosignature $FILE && rpm --root $ROOT -i $FILE &&
			rpm --root $ROOT -V allocscope`,
		program: "allocscope",
		remove:  `rpm --root $ROOT -e allocscope`,
		kept:    []string{"/var/lib/rpm", "/root/.rpmdb"},
		leaks:   []leak{listLeak},
	}
}

// musllinuxCases installs the wheel with busybox, since there is no pip for musl here, and with the
// pip of Debian, which is asked for such a system's.
func musllinuxCases(file string) []testCase {
	return []testCase{
		{
			root: "musl", form: "wheel", file: file,
			install: `mkdir -p /opt; cd /opt; unzip -q $FILE; chmod +x *.data/scripts/allocscope
				ln -s /opt/*.data/scripts/allocscope /bin/allocscope`,
			program: "allocscope",
			remove:  "rm -r /opt /bin/allocscope",
			leaks:   []leak{nativeLeak},
		},
		{
			root: "debian-13", form: "musl-whl", file: file,
			install: `python3 -m pip install --no-index --no-compile --target /opt/target \
				--only-binary=:all: --platform musllinux_1_1_x86_64 $FILE`,
			program: "/opt/target/bin/allocscope",
			remove:  "rm -r /opt/target" + removeCache,
			leaks:   []leak{listLeak},
		},
	}
}
