package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// replaced are words with a standard term in the language rules of CONTRIBUTING.md. Lapsed with a capital is a reason of
// the API, and NoBody a name of net/http.
var replaced = regexp.MustCompile(`(?i)\b(somebody|(?-i:[Nn]obody)|whoever|anew|forsaken|ailing|stands over|goes on by itself|(?:is|are) told|mend(?:s|ed)?|` +
	`of which|such as is|that one|those that|is to (?:leave|be made|have)|bears?|tells (?:it|what|how|that|whether)|glance|stray|` +
	`settle[sd]?|heeds?|errand|(?-i:lapse[sd]?)|gives? (?:out|back)|given (?:out|back)|no more)\b`)

// printWords prints the files with the most replaced words, and the first place in each.
func printWords(root string, most int) error {
	out, err := exec.Command("git", "-C", root, "ls-files").Output()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	type row struct {
		count int
		first string
	}
	var rows []row
	total := 0
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if !slices.Contains([]string{".go", ".md", ".js", ".yaml", ".tpl", ".txt"}, filepath.Ext(name)) ||
			strings.Contains(name, "/crds/") || strings.HasPrefix(filepath.Base(name), "zz_generated") || strings.HasSuffix(name, "style/words.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted in the work tree
		}
		found := slices.DeleteFunc(replaced.FindAllIndex(text, -1), func(at []int) bool {
			return bytes.HasPrefix(text[at[1]:], []byte(" than")) // "no more than" is a bound
		})
		if len(found) == 0 {
			continue
		}
		total += len(found)
		line := 1 + strings.Count(string(text[:found[0][0]]), "\n")
		rows = append(rows, row{len(found), fmt.Sprintf("%s:%d %q", name, line, text[found[0][0]:found[0][1]])})
	}
	slices.SortFunc(rows, func(a, b row) int {
		if a.count != b.count {
			return b.count - a.count
		}
		return strings.Compare(a.first, b.first)
	})
	fmt.Printf("\nWords with a standard term: %d in %d files, by files, with the first place in each\n", total, len(rows))
	for _, r := range rows[:min(most, len(rows))] {
		fmt.Printf("%6d  %s\n", r.count, r.first)
	}
	return nil
}
