package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// maxReasons is how many are told of one reading.
const maxReasons = 8

// reasons why something is missing of a reading, each once.
type reasons struct {
	texts []string
	more  bool
	// gone is the error after which NVML has to be started again; nil: there was none.
	gone error
}

// add notes what cannot be had and why.
func (r *reasons) add(what string, err error) {
	if isGone(err) && r.gone == nil {
		r.gone = err
	}
	text := what + ": " + err.Error()
	if errors.Is(err, ErrNoPermission) {
		text += " (run as root on the host)"
	}
	r.say(text)
}

func (r *reasons) say(text string) {
	switch {
	case slices.Contains(r.texts, text):
	case len(r.texts) == maxReasons:
		r.more = true
	default:
		r.texts = append(r.texts, text)
	}
}

func (r *reasons) String() string {
	texts := r.texts
	if r.more {
		texts = append(slices.Clip(texts), "and more")
	}
	return strings.Join(texts, "; ")
}

// isGone tells whether NVML answers nothing more before it is started again.
func isGone(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, ErrMismatch)
}

// printable is text of a driver or of the dynamic linker, bounded, with a question mark for what cannot be shown.
func printable(text string, limit int) string {
	var b strings.Builder
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			r = '?'
		}
		if b.Len()+len(string(r)) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// label names a device in a reason.
func label(index, instance int) string {
	if instance == whole {
		return fmt.Sprintf("GPU %d", index)
	}
	return fmt.Sprintf("GPU %d, MIG device %d", index, instance)
}
