package response

import "testing"

// FuzzHeaders parses any headers.
func FuzzHeaders(f *testing.F) {
	for _, text := range []string{"gzip;q=0.5, zstd", "*;q=0", `W/"a", "b"`, "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_ = acceptedCoding(text)
		_ = matchesTag(text, "tag")
	})
}
