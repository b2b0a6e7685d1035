package report

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/allocscope/allocscope/export/summary"
)

// Bounds on the texts and lists shown.
const (
	maxTextChars   = 500
	maxListEntries = 1000
)

// listBounds are the bounds of other lists, by their names in summary.json.
var listBounds = map[string]int{
	"snapshots_s": 100_000, "history_bytes": 100_000, "accumulating": 50, "suspects": 50,
	"advice": 50, "diagnoses": 50, "stack": 500, "path": 500, "callers": 500,
	"breakdown": 20_000, "residents": 10_000, "gpu_memory": 16, "curves": 16,
}

// maxExact is the largest magnitude of a number. Scripts read whole numbers up to it exactly, and
// sums of such numbers are finite.
const maxExact = 1 << 53

// clean makes text fit to be shown. Characters that are invisible, or would reorder the text around
// them, become U+FFFD, and any white space a space. The text is truncated after 500 characters.
func clean(text string) string {
	if len(text) > 4*maxTextChars { // a character has up to four bytes
		text = text[:4*maxTextChars+4]
	}

	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r),
			unicode.Is(unicode.Variation_Selector, r):
			return unicode.ReplacementChar
		}

		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))

	characters := 0
	for i := range text {
		if characters++; characters > maxTextChars {
			return text[:i] + "…"
		}
	}

	return text
}

// sanitized returns a copy of a summary in which all texts are clean, and all lists and numbers are
// bounded. The sentences name the lists that were truncated.
func sanitized(s *summary.Summary) (*summary.Summary, []string) {
	var t sanitizer
	out := t.value(reflect.ValueOf(*s), "").Interface().(summary.Summary)
	return &out, t.notes
}

// A sanitizer collects sentences about truncated lists.
type sanitizer struct{ notes []string }

// value copies a value. name is the name of the list in summary.json.
func (t *sanitizer) value(v reflect.Value, name string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(clean(v.String()))
	case reflect.Float64:
		out.SetFloat(finite(v.Float()))
	case reflect.Int, reflect.Int64:
		out.SetInt(min(max(v.Int(), -maxExact), maxExact))
	case reflect.Uint64:
		out.SetUint(min(v.Uint(), maxExact))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(t.value(v.Elem(), name))
		}
	case reflect.Slice:
		out.Set(t.list(v, name))
	case reflect.Map:
		out.Set(t.table(v, name))
	case reflect.Struct:
		t.fields(v, out)
	default:
		out.Set(v)
	}

	return out
}

func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -maxExact), maxExact)
}

func (t *sanitizer) fields(v, out reflect.Value) {
	if _, ok := v.Interface().(time.Time); ok {
		out.Set(v)
		return
	}

	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		out.Field(i).Set(t.value(v.Field(i), name))
	}
}

func (t *sanitizer) list(v reflect.Value, name string) reflect.Value {
	bound := maxListEntries
	if b, ok := listBounds[name]; ok {
		bound = b
	}

	if v.Len() > bound && len(t.notes) < maxListEntries {
		t.notes = append(t.notes,
			fmt.Sprintf("Of the %d entries of %s only the first %d are shown.", v.Len(), name,
				bound))
	}

	out := reflect.MakeSlice(v.Type(), 0, min(v.Len(), bound))
	for i := range min(v.Len(), bound) {
		out = reflect.Append(out, t.value(v.Index(i), name))
	}

	return out
}

func (t *sanitizer) table(v reflect.Value, name string) reflect.Value {
	out := reflect.MakeMap(v.Type())
	for each := v.MapRange(); each.Next() && out.Len() < maxListEntries; {
		out.SetMapIndex(t.value(each.Key(), name), t.value(each.Value(), name))
	}
	return out
}
