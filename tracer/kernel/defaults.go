package kernel

// Defaults and limits of Options.
const (
	DefaultInterval  = 512 << 10
	MaxInterval      = 1 << 30
	DefaultMaxLive   = 1 << 18
	DefaultMaxStacks = 65_536
)
