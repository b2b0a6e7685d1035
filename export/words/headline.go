package words

import "regexp"

var headlineName = regexp.MustCompile(`^([A-Z]+(?: [A-Z]+)*\??(?: \([a-z ]+\)|, too early to tell)?):? ?(.*)$`)

// SplitHeadline parts a Headline into the name of the verdict and what is said of it: "LEAK", "grows by ...".
func SplitHeadline(headline string) (name, sentence string) {
	if m := headlineName.FindStringSubmatch(headline); m != nil {
		return m[1], m[2]
	}
	return headline, ""
}
