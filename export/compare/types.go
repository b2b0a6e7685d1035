package compare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
)

const residentSpace, inuseSpace, deviceSpace = "resident_space", "inuse_space", "device_space"

// countOf is the sample type that counts the objects of one in bytes.
func countOf(sampleType string) string { return strings.TrimSuffix(sampleType, "_space") + "_objects" }

// typeIndex is the place of a sample type; -1 where the profile has none such.
func typeIndex(p *profile.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == sampleType })
}

// chooseType is the sample type that is compared: the one that was asked for, else resident_space, inuse_space or a default one of
// the profiles. All must have it, in bytes, and where there is a choice one that is not 0 throughout.
func chooseType(asked string, profiles ...*profile.Profile) (string, error) {
	candidates := []string{residentSpace, inuseSpace}
	for _, p := range profiles {
		candidates = append(candidates, defaultType(p))
	}
	if asked != "" {
		candidates = []string{asked}
	}
	first := ""
	for _, name := range candidates {
		if name == "" || slices.ContainsFunc(profiles, func(p *profile.Profile) bool { return !inBytes(p, name) }) {
			continue
		}
		if slices.ContainsFunc(profiles, func(p *profile.Profile) bool { return isSome(p, name) }) {
			return name, nil
		}
		first = cmp.Or(first, name)
	}
	if first == "" {
		return "", noCommonType(asked, profiles)
	}
	return first, nil
}

func noCommonType(asked string, profiles []*profile.Profile) error {
	lists := make([]string, len(profiles))
	for i, p := range profiles {
		lists[i] = typeList(p)
	}
	lists = slices.Compact(lists)
	if asked != "" {
		return fmt.Errorf("not all of what is compared has the sample type %q in bytes (choose another with --sample): they have %s", asked, strings.Join(lists, "; and "))
	}
	return errors.New("there is no sample type in bytes that both have: they have " + strings.Join(lists, "; and "))
}

func defaultType(p *profile.Profile) string {
	if p.DefaultSampleType != "" || len(p.SampleType) == 0 {
		return p.DefaultSampleType
	}
	return p.SampleType[len(p.SampleType)-1].Type
}

func inBytes(p *profile.Profile, name string) bool {
	i := typeIndex(p, name)
	return i >= 0 && p.SampleType[i].Unit == "bytes"
}

func isSome(p *profile.Profile, name string) bool {
	i := typeIndex(p, name)
	return slices.ContainsFunc(p.Sample, func(s *profile.Sample) bool { return s.Value[i] != 0 })
}

// isOnDevice tells the sample types of memory on GPUs.
func isOnDevice(sampleType string) bool { return strings.HasPrefix(sampleType, "device_") }

// isWhole tells the sample types whose sum is what the kernel, or the driver of a GPU, counts.
func isWhole(sampleType string) bool { return sampleType == residentSpace || sampleType == deviceSpace }

// level gives each profile of a trace the sample types of memory on GPUs that another one has: where nothing was on a GPU they are left
// out, and mean nothing.
func level(profiles ...*profile.Profile) {
	for _, of := range profiles {
		for _, v := range of.SampleType {
			for _, p := range profiles {
				if isOnDevice(v.Type) && typeIndex(p, v.Type) < 0 && typeIndex(p, residentSpace) >= 0 {
					addType(p, v)
				}
			}
		}
	}
}

// addType adds a sample type of which there is nothing.
func addType(p *profile.Profile, v *profile.ValueType) {
	p.SampleType = append(p.SampleType, &profile.ValueType{Type: v.Type, Unit: v.Unit})
	for _, s := range p.Sample {
		s.Value = append(s.Value, 0)
	}
}

// typeList names the sample types: "cpu/nanoseconds, samples/count".
func typeList(p *profile.Profile) string {
	var types []string
	for _, v := range p.SampleType {
		types = append(types, export.Printable(v.Type+"/"+v.Unit))
	}
	return strings.Join(types, ", ")
}
