package growth

// A Thinning says which samples of a long series are kept: every second, fourth, ... one, and the
// last. The judgement of a series needs samples that are equally far apart. The zero value keeps
// all.
type Thinning struct {
	// stride is the number of samples of which one is kept; 0: all are. taken counts samples since it
	// changed.
	stride, taken int

	// dropsLast: the next sample takes the place of the last one.
	dropsLast bool
}

// Take counts a sample that was added. It returns whether that stays, so that there may be too many
// now.
func (t *Thinning) Take() (stays bool) {
	t.taken++
	t.dropsLast = t.stride > 0 && t.taken%t.stride != 0
	return !t.dropsLast
}

// DropsLast reports whether the next sample takes the place of the last one.
func (t *Thinning) DropsLast() bool { return t.dropsLast }

// Halve takes half as many samples from now on. The caller drops every other one (EveryOther).
func (t *Thinning) Halve() { t.stride, t.taken = max(2, 2*t.stride), 0 }

// Stride is the number of samples of which one is kept, for files.
func (t *Thinning) Stride() int { return max(1, t.stride) }

// ThinningOf returns a thinning that goes on with a stride.
func ThinningOf(stride int) Thinning {
	if stride < 2 {
		return Thinning{}
	}
	return Thinning{stride: stride}
}

// EveryOther returns the first element, every second one before the last, and the last.
func EveryOther[T any](all []T) []T {
	kept := make([]T, 0, len(all)/2+2)
	for i := range all {
		if i == 0 || (len(all)-1-i)%2 == 0 {
			kept = append(kept, all[i])
		}
	}
	return kept
}
