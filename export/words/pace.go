package words

import (
	"fmt"
	"math"
)

// Pace is how often something happens: "12.3 k events/s", "4.2 steps/s", "0.08 steps/s".
func Pace(perSecond float64, what string) string {
	text := Count(perSecond)
	if perSecond > 0 && perSecond < 9.95 {
		text = fmt.Sprintf("%.*f", max(1, 1-int(math.Floor(math.Log10(perSecond)))), perSecond)
	}
	return text + " " + what + "/s"
}

// Percent is a share of 1: "1.2 %", "34 %".
func Percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
