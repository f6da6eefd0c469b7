package kube

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForeignText has texts from backends and events that contain control characters for a terminal or
// a log, or that the API server would reject.
func TestForeignText(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"no free prefix":                         "no free prefix",
		"failed\nReady: True\r":                  "failed Ready: True ",
		"\x1b[2J\x1b]0;owned\x07":                " [2J ]0;owned ",
		"abc\u202edcba\u2066":                    "abcdcba",
		"two\u2028lines\u0085here":               "two lines here",
		"\xff\xfe":                               "?",
		strings.Repeat("é", 3000):                strings.Repeat("é", 2046) + " ...",
		strings.Repeat("x", maxMessage) + "tail": strings.Repeat("x", maxMessage-4) + " ...",
	} {
		var conditions []metav1.Condition
		SetReady(&conditions, 1, false, "Failed", said)
		if got := conditions[0].Message; got != want {
			t.Errorf("%q became %q", said, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2Jb", 10)
	f.Add("\xff\u202e", 4)
	f.Add(strings.Repeat("é", 100), 33)
	f.Fuzz(func(t *testing.T, text string, maxBytes int) {
		if maxBytes < 4 || maxBytes > 1<<16 {
			return
		}
		if got := Text(text, maxBytes); len(got) > maxBytes || !utf8.ValidString(got) || strings.ContainsAny(got, "\r\n\x1b\x00\u2028\u202e") || Text(got, maxBytes) != got {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// TestProgress writes Ready of each kind of reason, one after the other, into one object.
func TestProgress(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	for _, tc := range []struct {
		because, reason string
		ready           bool
		want            string
	}{
		{"a machine that starts needs no action", "Starting", false, "Reconciling"},
		{"the requester corrects the spec", "InvalidSpec", false, "Stalled"},
		{"the platform team repairs the hypervisor, and the stack continues by itself", "ProviderUnavailable", false, "Reconciling"},
		{"the network team enlarges the pool", "PoolExhausted", false, "Stalled"},
		{"an approval corrects nothing", "PendingApproval", false, "Reconciling"},
		{"it is off because its spec says so", "Stopped", true, ""},
		{"it has been changed, and waits again", "WaitingForAddress", false, "Reconciling"},
		{"it is as its spec wants it", "MachineRunning", true, ""},
	} {
		SetReady(&conditions, 7, tc.ready, tc.reason, "text")
		setProgress("Machine", &conditions)
		got := ""
		for _, c := range conditions {
			if c.Type != "Ready" {
				got += c.Type
				if c.Status != metav1.ConditionTrue || c.Reason != tc.reason || c.Message != "text" || c.ObservedGeneration != 7 {
					t.Errorf("%s: got %+v", tc.because, c)
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: got %q besides Ready, want %q", tc.because, got, tc.want)
		}
	}
}
