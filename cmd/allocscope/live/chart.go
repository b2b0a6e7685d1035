package live

import (
	"math"
	"strings"
)

var (
	risingBlocks = []rune(" ▁▂▃▄▅▆▇█")
	lyingBlocks  = []rune(" ▏▎▍▌▋▊▉█")
)

// flatShare is the least height of a chart as a share of the largest size: noise is not blown up to hills.
const flatShare = 0.02

// A scale is what the lowest and the highest block of a chart stand for, in bytes.
type scale struct{ low, high int64 }

func scaleOf(t Trail) scale {
	least := int64(flatShare * float64(t.Max))
	return scale{max(0, min(t.Min, t.Max-least)), t.Max}
}

// eighths of a height that a size takes, 1 at least.
func (s scale) eighths(bytes int64, height int) int {
	full := 8 * height
	if s.high <= s.low {
		return 1
	}
	return min(full, max(1, int(math.Round(float64(full)*float64(bytes-s.low)/float64(s.high-s.low)))))
}

// chart draws sizes side by side in so many lines.
func chart(sizes []int64, s scale, height int) []string {
	lines := make([]string, height)
	for row := range lines {
		var line strings.Builder
		below := 8 * (height - 1 - row)
		for _, size := range sizes {
			line.WriteRune(risingBlocks[min(8, max(0, s.eighths(size, height)-below))])
		}
		lines[row] = line.String()
	}
	return lines
}

// bar is a lying bar of a share (0 to 1) of a width.
func bar(share float64, width int) string {
	if !(share > 0) || width <= 0 {
		return ""
	}
	eighths := int(math.Round(min(share, 1) * float64(8*width)))
	text := strings.Repeat(string(lyingBlocks[8]), eighths/8)
	if part := eighths % 8; part > 0 {
		text += string(lyingBlocks[part])
	}
	return text
}
