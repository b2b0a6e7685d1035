package verdict_test

import (
	"fmt"

	"github.com/allocscope/allocscope/growth/verdict"
)

// A process that is two hours old is watched for an hour. Each step takes up to 56 MiB and gives them
// back, and the process keeps 1 MiB a minute.
func ExampleJudge() {
	const mib = 1 << 20
	var rss verdict.Series
	for second := range 3600 {
		transient := float64(second % 8 * 8)
		rss.X = append(rss.X, float64(second))
		rss.Y = append(rss.Y, (4096+transient+float64(second)/60)*mib)
	}

	setting := verdict.Setting{Age: 7200, Limit: 8192 * mib}
	v := verdict.Judge(rss, setting, verdict.InSeconds())

	fmt.Println(v.Class)
	fmt.Printf("%.2f MiB/min (95%% CI %.2f to %.2f)\n",
		v.Rate*60/mib, v.RateLow*60/mib, v.RateHigh*60/mib)
	fmt.Printf("out of memory in %.0f hours\n", v.ToLimit/3600)
	// Output:
	// leak
	// 1.01 MiB/min (95% CI 0.64 to 1.38)
	// out of memory in 66 hours
}
