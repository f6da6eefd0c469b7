// Package setting reads the values of settings.
package setting

import (
	"fmt"
	"strings"
)

// Bool reads true, t, 1, yes or on, and false, f, 0, no or off, in any case. Another text is an error.
func Bool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "t", "1", "yes", "on":
		return true, nil
	case "false", "f", "0", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}
