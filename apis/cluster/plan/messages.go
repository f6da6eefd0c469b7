package plan

import "fmt"

// Pick returns yes if ok is true, and otherwise no.
func Pick[T any](ok bool, yes, no T) T {
	if ok {
		return yes
	}
	return no
}

// Quantity returns a number with its noun, for a message: "1 machine", "3 machines".
func Quantity(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
