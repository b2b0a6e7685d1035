package growth

import "math"

// Judge says whether a series leaks. How it judges is told in docs/verdict.md.
func Judge(series Series, setting Setting, criteria Criteria) Verdict {
	s := series.clean()
	s, setting, restarted := s.sinceStart(setting)
	v := unknown(s, criteria)
	v.Restarted = restarted
	if len(s.X) < fewest {
		return v
	}
	start := s.X[0]
	if mark := setting.EpochEnd; mark != nil && start < *mark && *mark < s.end() {
		start = *mark
	}
	c, ok := courseOf(s, start, setting.Age)
	if !ok {
		return v
	}
	e := weigh(s, setting, criteria, c)
	e.describe(&v)
	e.decide(&v)
	v.Phases = phasesOf(s, c, v)
	return v
}

// unknown is the verdict on a series of which nothing can be said.
func unknown(s Series, criteria Criteria) Verdict {
	nan := math.NaN()
	v := Verdict{
		Class: ClassTooShort, Why: "too short",
		Rate: nan, RateLow: nan, RateHigh: nan, Bound: nan, Level: nan, LevelAt: nan, From: nan, Start: nan, HeadsFor: nan,
		ToLimit: nan, ToLimitLow: nan, ToLimitHigh: nan, Longer: criteria.MinFlat,
	}
	if len(s.X) > 0 {
		v.Start, v.Length = s.X[0], s.end()-s.X[0]
	}
	if v.Length > 0 {
		v.Phases = []Phase{{Kind: PhaseOpen, From: s.X[0], To: s.end(), Rate: nan}}
	}
	return v
}
