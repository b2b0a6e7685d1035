package live

import (
	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/growth"
)

// Colours of the 256 that have about the same contrast on white as on black.
const (
	red   = ansi.IndexedColor(160)
	amber = ansi.IndexedColor(130)
	green = ansi.IndexedColor(28)
	blue  = ansi.IndexedColor(31)
	grey  = ansi.IndexedColor(243)
)

func in(color ansi.IndexedColor, text string) string {
	return ansi.NewStyle().ForegroundColor(color).Styled(text)
}

func dim(text string) string { return in(grey, text) }

func bold(text string) string { return ansi.NewStyle().Bold().Styled(text) }

func boldIn(color ansi.IndexedColor, text string) string {
	return ansi.NewStyle().Bold().ForegroundColor(color).Styled(text)
}

// colorOf a verdict.
func colorOf(class growth.Class) ansi.IndexedColor {
	switch class {
	case growth.ClassLeak, growth.ClassSuspected:
		return red
	case growth.ClassGrowing, growth.ClassSaturating:
		return amber
	case growth.ClassPlateau, growth.ClassSpikyPlateau:
		return green
	}
	return grey
}
