package cpython

import "fmt"

// A publishedOffset is an offset that _Py_DebugOffsets has, and where in it.
// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h
type publishedOffset struct {
	member   string
	position uint64 // in bytes
	want     uint64
}

// published returns the offsets that an interpreter from 3.13 on publishes beside the offsets that
// tracer/python uses. A release whose structures differ from the structures of its version
// publishes others. It is false if no positions are known of the version.
func (s *Structures) published() (offsets []publishedOffset, isKnown bool) {
	if s.Minor < 13 {
		return nil, true
	}

	collecting := s.GCGenerationStats + gcGenerations*gcGenerationStatSize
	switch s.Minor {
	case 13:
		return []publishedOffset{
			{"interpreter_frame.localsplus", 256, s.FrameLocalsplus},
			{"interpreter_frame.owner", 264, s.FrameOwner},
			{"code_object.argcount", 320, s.CodeArgcount},
			{"code_object.localsplusnames", 328, s.CodeLocalsplusnames},
			{"type_object.tp_name", 376, s.TypeName},
			{"type_object.tp_flags", 392, s.TypeFlags},
			{"tuple_object.ob_item", 408, s.TupleItem},
			{"list_object.ob_item", 432, s.ListItem},
			{"dict_object.ma_keys", 456, s.DictKeys},
			{"dict_object.ma_values", 464, s.DictValues},
			{"gc.collecting", 576, collecting},
		}, true
	case 14:
		return []publishedOffset{
			{"interpreter_frame.localsplus", 280, s.FrameLocalsplus},
			{"interpreter_frame.owner", 288, s.FrameOwner},
			{"interpreter_frame.stackpointer", 296, s.FrameStackpointer},
			{"code_object.argcount", 360, s.CodeArgcount},
			{"code_object.localsplusnames", 368, s.CodeLocalsplusnames},
			{"type_object.tp_name", 424, s.TypeName},
			{"type_object.tp_flags", 440, s.TypeFlags},
			{"tuple_object.ob_item", 456, s.TupleItem},
			{"list_object.ob_item", 480, s.ListItem},
			{"set_object.used", 504, s.SetUsed},
			{"set_object.table", 512, s.SetTable},
			{"set_object.mask", 520, s.SetMask},
			{"dict_object.ma_keys", 536, s.DictKeys},
			{"dict_object.ma_values", 544, s.DictValues},
			{"gc.collecting", 656, collecting},
			{"gen_object.gi_iframe", 680, s.GenIframe},
			{"gen_object.gi_frame_state", 688, s.GenFrameState},
		}, true
	}
	return nil, false
}

// checkPublished returns an error if the _Py_DebugOffsets at _PyRuntime has other offsets, or if it
// cannot be compared.
func (s *Structures) checkPublished(v *view, runtime uint64) error {
	offsets, isKnown := s.published()
	if !isKnown {
		return fmt.Errorf("the offsets that 3.%d publishes cannot be checked (a newer allocscope?)",
			s.Minor)
	}

	for _, p := range offsets {
		got, ok := v.word(runtime + p.position)
		if !ok {
			return errUnreadable
		}
		if got != p.want {
			return fmt.Errorf("%s is at %d instead of %d (a modified build?)", p.member, got, p.want)
		}
	}
	return nil
}
