package summary

// CountedSchema is the version of the form of Counted, as Schema is for a Summary.
const CountedSchema = "allocscope-objects/1"

// Counted is the content of `allocscope objects --json`: a census of a process. With --every there
// is one in each line, and the growth is that since the first.
type Counted struct {
	// Schema is the version of this form.
	Schema  string  `json:"schema"`
	Process Process `json:"process"`
	// Objects of the process. Times count from the first census.
	Objects *Objects `json:"objects"`
	// Keepers are who keeps the objects of the type of --keepers; absent without it. With --every
	// they are those that the first count has not seen; the list is empty where there are none.
	Keepers []Keeper `json:"keepers,omitzero"`
}
