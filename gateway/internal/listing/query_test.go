package listing

import (
	"strings"
	"testing"
)

// TestQueriesHaveTheirOwnIdentity compares queries that select different entries. A response that is cached for one of them must not be the
// response to the other.
func TestQueriesHaveTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	v := Vocabulary{
		Attributes: []string{"name", "status"}, Fields: []string{"name"},
		Compare: func(_, a, b string) int { return strings.Compare(a, b) },
	}
	for _, tc := range []struct{ reason, one, other string }{
		{"a value with the text of another filter", "name=a%26status!%3Db", "name=a&status!=b"},
		{"a value with that text and its quotes", "name=a%22%5Dstatus!%5B%22b", "name=a&status!=b"},
		{"a value with that text and NUL", "name=a%26status%00%3Db", "name=a&status=b"},
		{"a list and its text", "name=a,b", "name=a%22%20%22b"},
		{"equal and different", "name=a", "name!=a"},
		{"a text to look for and a filter", "q=name", "name="},
		{"another order", "sort=name", "sort=-name"},
		{"another page size", "limit=1", "limit=2"},
	} {
		a, err := Parse(tc.one, v, 10)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Parse(tc.other, v, 10)
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest() == b.Digest() {
			t.Errorf("%s: %s and %s have one identity", tc.reason, tc.one, tc.other)
		}
	}
	a, _ := Parse("name=a&sort=-name&limit=5", v, 10)
	b, _ := Parse("limit=5&sort=-name&name=a", v, 10)
	if a == nil || b == nil || a.Digest() != b.Digest() {
		t.Error("the order of the parameters changes the identity")
	}
}
