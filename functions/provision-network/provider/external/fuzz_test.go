package external

import (
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
)

// FuzzAnswer parses any data as the answer of an external IPAM. An accepted segment is usable for
// machines.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"uid":"u","ipv4Prefix":"10.20.30.0/24","ipv4Gateway":"10.20.30.1","vlanId":230,"dns":["10.0.0.1"]}`, `{"uid":"u","reason":"NoFreePrefix","message":"m"}`,
		`{"uid":"u","ipv6Prefix":"fe80::/64"}`, `{"uid":"u","ipv4Prefix":"::ffff:10.0.0.0/120"}`, `{"uid":"u","vlanId":-1}`, `{"uid":"u","ipv4Prefix":"169.254.0.0/17"}`, `null`, `[]`,
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, failed bool) {
		e := event.New()
		e.SetType(events.TypeNetworkProvisioned)
		if failed {
			e.SetType(events.TypeNetworkFailed)
		}
		e.DataEncoded = data
		a, err := ReadAnswer(e)
		if err != nil {
			if !events.IsPermanent(err) {
				t.Errorf("%s is redelivered forever: %v", data, err)
			}
			return
		}
		if a.UID == "" || (failed && a.Err == nil) {
			t.Errorf("%s is accepted as an answer about %q: %v", data, a.UID, a.Err)
		}
		if p := a.Segment.IPv4; a.Err == nil && p.IsValid() && (!p.Addr().Is4() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsMulticast()) {
			t.Errorf("%s is accepted as a segment of %s", data, p)
		}
	})
}
