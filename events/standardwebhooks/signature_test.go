package standardwebhooks_test

import (
	"testing"
	"time"

	"github.com/vitistack/stack/events/standardwebhooks"
)

var secret = standardwebhooks.Secret("0123456789abcdef0123456789abcdef")

func TestSignatures(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	body := []byte(`{"a":1}`)
	good := secret.Sign("msg", now, body)
	cases := map[string]struct {
		reason, id, timestamp, signature string
		ok                               bool
	}{
		"Good":      {reason: "the message is unchanged", id: "msg", timestamp: "1700000000", signature: good, ok: true},
		"Several":   {reason: "one of several signatures during a rotation is valid", id: "msg", timestamp: "1700000000", signature: "v1,AAAA v2,x " + good, ok: true},
		"OtherID":   {reason: "another message", id: "other", timestamp: "1700000000", signature: good},
		"OtherTime": {reason: "another time", id: "msg", timestamp: "1700000001", signature: good},
		"Old":       {reason: "a replayed message is too old", id: "msg", timestamp: "1699999000", signature: secret.Sign("msg", time.Unix(1_699_999_000, 0), body)},
		"Future":    {reason: "the sender's clock is ahead", id: "msg", timestamp: "1700001000", signature: secret.Sign("msg", time.Unix(1_700_001_000, 0), body)},
		"None":      {reason: "no signature", id: "msg", timestamp: "1700000000"},
		"NoTime":    {reason: "no time", id: "msg", signature: good},
		"Version":   {reason: "an unknown version", id: "msg", timestamp: "1700000000", signature: "v2" + good[2:]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := secret.Verify(tc.id, tc.timestamp, tc.signature, body, now); (err == nil) != tc.ok {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
	// The example of the specification.
	s, err := standardwebhooks.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := s.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	for _, bad := range []string{"", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!"} {
		if _, err := standardwebhooks.ParseSecret(bad); err == nil {
			t.Errorf("the secret %q was accepted", bad)
		}
	}
}
