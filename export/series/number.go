package series

import (
	"math"
	"strconv"
)

// powers of ten that a float64 holds exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// number reads the decimal number at the beginning of text and says how many bytes it takes, 0 if there is none. Commas are
// read where they part thousands. Words such as NaN and inf are no numbers; what is out of range is infinite.
func number(text []byte) (value float64, length int) {
	i := 0
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		i++
	}
	negative := i > 0 && text[0] == '-'
	mantissa, digits, decimals, commas := uint64(0), 0, 0, false
	for point := false; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if digits++; digits < 19 {
				mantissa = mantissa*10 + uint64(c-'0')
			}
			if point {
				decimals++
			}
			continue
		case c == '.' && !point:
			point = true
			continue
		case c == ',' && !point && digits > 0 && thousands(text[i+1:]):
			commas = true
			continue
		}
		break
	}
	if digits == 0 {
		return 0, 0
	}
	end := exponent(text, i)
	if end > i || digits > 15 || decimals >= len(powers) { // 15 digits are exact, and so is their quotient
		return slowNumber(text[:end], commas), end
	}
	value = float64(mantissa) / powers[decimals]
	if negative {
		value = -value
	}
	return value, i
}

// thousands tells that three digits follow, and no fourth.
func thousands(text []byte) bool {
	digit := func(i int) bool { return i < len(text) && text[i] >= '0' && text[i] <= '9' }
	return digit(0) && digit(1) && digit(2) && !digit(3)
}

// exponent gives where an exponent at i ends: at i if there is none.
func exponent(text []byte, i int) int {
	if i >= len(text) || text[i]|0x20 != 'e' {
		return i
	}
	end := i + 1
	if end < len(text) && (text[end] == '-' || text[end] == '+') {
		end++
	}
	digits := end
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end == digits {
		return i
	}
	return end
}

// slowNumber reads what does not fit an exact quotient.
func slowNumber(text []byte, commas bool) float64 {
	plain := make([]byte, 0, len(text))
	for _, c := range text {
		if c != ',' || !commas {
			plain = append(plain, c)
		}
	}
	value, err := strconv.ParseFloat(string(plain), 64)
	if err != nil {
		return math.Inf(1)
	}
	return value
}
