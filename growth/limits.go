package growth

// Limits are the 95 % interval of a sum over sampled objects: bytes with a variance (bytes²), the mean number of bytes between
// samples being interval. They allow for one more sample than there is, as of objects that are smaller than the interval; an
// interval of 0 or 1 misses nothing.
func Limits(bytes, variance, interval float64) (low, high float64) {
	a := stackAmount{bytes: bytes, variance: variance}.sound()
	return a.low(oneInTwenty / 2), a.high(oneInTwenty/2, interval)
}
