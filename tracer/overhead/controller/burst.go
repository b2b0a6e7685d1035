package controller

import "github.com/allocscope/allocscope/growth"

// A burst is a short time in which the probes are open. Times are in seconds.
type burst struct {
	phase   burstPhase
	from    float64
	length  float64 // planned, and the true one once its end is decided
	planned float64 // seconds that its probes may take
	use     timeUse
	calm    bool
}

type burstPhase int

const (
	burstClosed    burstPhase = iota
	burstOpen                 // the probes are attached
	burstDetaching            // the next reading has the rest of the probes' time
)

const (
	maxBurst = 0.5 // s
	minBurst = 0.1 // s
	// minSpacing is the shortest mean time from one burst to the next, in seconds.
	minSpacing = 5
	// maxBurstCredit bounds the time in probes of a burst that is longer than minBurst, in seconds
	// of the budget's rate: a quarter of a minute's allowance.
	maxBurstCredit = 15
	// retrySpacing and maxRetrySpacing bound the time between bursts in mode off, in seconds.
	retrySpacing    = 60
	maxRetrySpacing = 600
	// The duty cycle is the share of the time in bursts, at first and after earlySeconds. More
	// bursts would show little more.
	earlyDutyCycle, lateDutyCycle = 0.05, 0.02
	earlySeconds                  = 600
	// planShare is the share of the budget that is planned for, so that bursts seldom have to wait
	// until the last minute has room.
	planShare = 0.9
)

// isBetweenBursts reports whether heap probes were closed since the last reading.
func (c *Controller) isBetweenBursts() bool {
	return c.mode != growth.HeapFull && c.burst.phase == burstClosed
}

// advanceBurst opens and closes bursts. It ends a burst early where it took twice its plan, all of
// the credit, or the rest of the minute.
func (c *Controller) advanceBurst(u timeUse) {
	b := &c.burst
	switch b.phase {
	case burstClosed:
		c.openBurst()
	case burstOpen:
		b.use.add(u)
		isOver := c.now >= b.from+b.length-minWait
		if isOver || b.use.probes > max(2*b.planned, creditSeconds*c.budget.rate()) ||
			c.budget.headroom() < 0 {
			b.phase, b.length = burstDetaching, max(c.now-b.from, 1e-3)
			b.calm = c.isCalm(b.use)
			c.open += b.length
		}
	case burstDetaching:
		b.phase = burstClosed
		if b.length > 0 {
			b.use.add(u)
			c.finishBurst()
		}
	}
}

// isCalm reports whether calls would cost little if they were probed all the time, with no finer
// interval than in mode full.
func (c *Controller) isCalm(u timeUse) bool {
	finer := float64(c.burstInterval) / float64(max(c.fullInterval.bytes, c.burstInterval))
	u.probes -= (1 - finer) * u.walking
	return u.rate() < calmBudgetShare*c.budget.rate()
}

// scheduleNext draws the pause until the next burst: the planned one times an exponential number of
// mean 1, cut at 3. Such bursts resonate with no period of the program. Many follow each other
// closely, so that frees of young objects are seen.
func (c *Controller) scheduleNext(last burst) {
	const longest, mean = 3, 0.9502 // 1 - exp(-longest)
	c.burst = last
	c.scheduleFrom, c.pauseFactor = c.now, min(c.random.ExpFloat64(), longest)/mean
}

// untilNextBurst returns the time left until the next burst, in seconds.
func (c *Controller) untilNextBurst(p burstPlan) float64 {
	return c.scheduleFrom + c.pauseFactor*p.spacing - c.now
}

// openBurst opens a burst when its time has come and the last minute has room for it.
func (c *Controller) openBurst() {
	p := c.plan()
	if c.untilNextBurst(p) > minWait {
		return
	}
	if c.mode == growth.HeapBursts && !p.fits {
		c.reduce(p, c.burst.use)
		return
	}

	planned := p.rate * p.length
	if p.fits && c.budget.headroom() < planned {
		// The next attempt is random: room comes exactly a minute after another burst.
		c.pauseFactor += 0.5 * c.random.Float64()
		return
	}
	c.burst = burst{phase: burstOpen, from: c.now, length: p.length, planned: planned}
	c.bursts++
}

// finishBurst updates the forecast by a burst, and opens the probes if enough bursts were calm.
func (c *Controller) finishBurst() {
	b := c.burst
	if c.mode == growth.HeapOff {
		c.forecast = costForecast{}
	}
	c.forecast.add(b.use, b.length)
	if c.options.hasHeapAndTensor() {
		c.change(c.tensor.finishBurst(b.use, c.budget.rate(), c.now))
	}
	c.tuneBurstInterval(b.use)

	if c.full.observe(b.calm) {
		c.full.opened(c.now)
		c.enterFull()
		c.changeForCost(growth.OverheadChange{Reason: growth.OverheadCalm}, b.use)
		return
	}
	c.scheduleNext(b)
	if p := c.plan(); p.fits {
		c.reduce(p, b.use)
	}
}

// A burstPlan is the length of bursts and the mean time from one to the next, in seconds.
type burstPlan struct {
	length, spacing float64
	rate            float64 // share of a burst that its probes are expected to take
	fits            bool    // false: even the shortest burst is too expensive
}

// dutyCycle returns the share of the time in bursts that the budget is asked for.
func dutyCycle(now float64) float64 {
	if now < earlySeconds {
		return earlyDutyCycle
	}
	return lateDutyCycle
}

// plan chooses the next burst, such that length * rate / spacing is the rate of the budget.
func (c *Controller) plan() burstPlan {
	duty := dutyCycle(c.now)
	maxSpacing := min(max(c.options.Maturity.Seconds()/2, minSpacing), 30)

	// Tensor probes that are always open take their part first, but never more than 3/4.
	income := c.budget.rate()
	income = planShare * max(income-c.budget.total.idle/max(c.budget.total.elapsed, 1), income/4)

	rate := c.forecast.rate(c.budget.busyCores(c.now - c.scheduleFrom))
	length := max(minBurst, min(maxBurst, duty*maxSpacing))
	if credit := min(maxSpacing, maxBurstCredit) * income; rate*length > credit {
		length = max(minBurst, credit/rate)
	}
	if rate*length > maxSpacing*income {
		spacing := min(max(retrySpacing, rate*minBurst/income), maxRetrySpacing)
		return burstPlan{minBurst, spacing, rate, false}
	}

	spacing := max(minSpacing, length/duty)
	if c.burst.calm {
		spacing = minSpacing // to know soon whether it stays calm
	}
	return burstPlan{length, min(maxSpacing, max(rate*length/income, spacing)), rate, true}
}

// A costForecast predicts the cost of the next burst by the cost of the last three.
type costForecast struct{ bursts []burstCost }

type burstCost struct {
	rate  float64 // share of the time that the burst was open
	share float64 // of the program's own CPU time; 0: the program hardly ran
}

// add adds a burst that was open for so many seconds.
func (f *costForecast) add(u timeUse, open float64) {
	f.bursts = append(f.bursts, burstCost{min(u.probes/open, 1e6), u.probes / max(u.native, u.probes/1000, 1e-9)})
	f.bursts = f.bursts[max(0, len(f.bursts)-3):]
}

// rate returns the share of a burst that its probes are expected to take, for a program that keeps so
// many cores busy now. It is the median of three bursts, which follows neither a storm that is
// over nor a moment of rest; of fewer bursts it is the last one's.
func (f *costForecast) rate(cores float64) float64 {
	var x, y, z float64
	switch n := len(f.bursts); n {
	case 0:
	case 3:
		x, y, z = f.bursts[0].rateAt(cores), f.bursts[1].rateAt(cores), f.bursts[2].rateAt(cores)
	default:
		x = f.bursts[n-1].rateAt(cores)
		y, z = x, x
	}
	return max(min(x, y), min(max(x, y), z))
}

func (b burstCost) rateAt(cores float64) float64 {
	if b.share == 0 {
		return 0
	}
	return min(b.rate, b.share*cores)
}
