package history

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// The first and the last time that can be written in JSON.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()
)

// timeOf converts a time of the database, and moves a time that JSON cannot represent to the nearest one.
func timeOf(micro int64) time.Time {
	return time.UnixMicro(min(max(micro, firstTime), lastTime)).UTC()
}

// storable replaces bytes that PostgreSQL and MySQL refuse in a text: NUL, and what is not UTF-8, such as the status line of a server in
// another encoding.
func storable(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// fit shortens a value that is too long for its column, so that different values stay different, and makes it storable.
func fit(s string, most int) string {
	s = storable(s)
	if len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	mark := "~" + hex.EncodeToString(sum[:8])
	cut := most - len(mark)
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + mark
}
