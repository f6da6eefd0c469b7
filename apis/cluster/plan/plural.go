package plan

import "fmt"

// Plural returns a number with its noun, for a message: "1 machine", "3 machines".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
