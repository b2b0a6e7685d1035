package console

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/growth/verdict"
)

// A Color is the value of --color: auto, always or never. The zero value is auto.
type Color string

// The values of a Color.
const (
	ColorAuto   Color = "auto"
	ColorAlways Color = "always"
	ColorNever  Color = "never"
)

// Type implements pflag.Value.
func (c *Color) Type() string { return "when" }

// String implements pflag.Value.
func (c *Color) String() string {
	if *c == "" {
		return string(ColorAuto)
	}
	return string(*c)
}

// Set implements pflag.Value.
func (c *Color) Set(text string) error {
	switch color := Color(text); color {
	case ColorAuto, ColorAlways, ColorNever:
		*c = color
		return nil
	}
	return fmt.Errorf("%q is neither auto nor always nor never", text)
}

// Enabled reports whether text written to out has colours. With auto it has where out is a terminal
// that is not dumb, unless NO_COLOR is set (https://no-color.org/).
func (c *Color) Enabled(out io.Writer) bool {
	switch *c {
	case ColorAlways:
		return true
	case ColorNever:
		return false
	}

	return IsTerminal(out) && mayColor()
}

// mayColor reports whether the environment allows colours.
func mayColor() bool {
	terminal := os.Getenv("TERM")
	return os.Getenv("NO_COLOR") == "" && terminal != "" && terminal != "dumb"
}

// SGR sequences of ECMA-48: colours of the 256 that can be read on white and on black.
const (
	amberText = "\x1b[38;5;130m"
	redText   = "\x1b[38;5;160m"
	plainText = "\x1b[0m"
)

// colored returns a word of a level in its colour.
func colored(level slog.Level, word string) string {
	switch {
	case level >= slog.LevelError:
		return redText + word + plainText
	case level >= slog.LevelWarn:
		return amberText + word + plainText
	}
	return word
}

// Colours of the 256 that have about the same contrast to white as to black.
const (
	Red   = ansi.IndexedColor(160)
	Amber = ansi.IndexedColor(130)
	Green = ansi.IndexedColor(28)
	Grey  = ansi.IndexedColor(243)
)

// ColorOf returns the colour of a verdict.
func ColorOf(class verdict.Class) ansi.IndexedColor {
	switch class {
	case verdict.ClassLeak, verdict.ClassSuspected:
		return Red
	case verdict.ClassGrowing, verdict.ClassFillsUp, verdict.ClassSaturating:
		return Amber
	case verdict.ClassPlateau, verdict.ClassSpikyPlateau:
		return Green
	}
	return Grey
}
