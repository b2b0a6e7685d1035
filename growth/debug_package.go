package growth

// A DebugPackage is the package of a Linux distribution that has the symbols of a stripped file.
type DebugPackage struct {
	// Manager installs it; empty: no known distribution has installed the file.
	Manager PackageManager
	// Name is empty where the manager's own data are not read.
	Name string
}

// A PackageManager is a package manager, by its command.
type PackageManager string

// The package managers.
const (
	ManagerApt    PackageManager = "apt"    // of Debian and Ubuntu
	ManagerApk    PackageManager = "apk"    // of Alpine
	ManagerDnf    PackageManager = "dnf"    // of Fedora and RHEL
	ManagerZypper PackageManager = "zypper" // of SUSE
)
