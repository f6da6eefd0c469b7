package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestBootstrapState(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		b      BootstrapState
		want   BootstrapStep
	}{
		"NotReady":   {"no node has a configuration yet", BootstrapState{}, BootstrapWait},
		"Choose":     {"the choice is recorded first", BootstrapState{IsReady: true}, BootstrapChooseMachine},
		"Ask":        {"the chosen machine is asked for the state of etcd", BootstrapState{Chosen: true, IsReady: true}, BootstrapAskMachine},
		"Down":       {"etcd may run there, so no other machine is chosen", BootstrapState{Chosen: true}, BootstrapWait},
		"LostBegun":  {"other machines have joined the bootstrapped etcd", BootstrapState{Chosen: true, Lost: true, IsReady: true, HasOtherMembers: true}, BootstrapDone},
		"LostSilent": {"a machine that does not answer may have joined it", BootstrapState{Chosen: true, Lost: true, IsReady: true, Unanswered: []string{"shop-cp-1"}}, BootstrapWait},
		"LostFirst":  {"the etcd that it bootstrapped is lost with it", BootstrapState{Chosen: true, Lost: true, IsReady: true}, BootstrapChooseMachine},
		"LostAlone":  {"there is no machine to choose", BootstrapState{Chosen: true, Lost: true}, BootstrapWait},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.b.Next(); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNextBootstrapRequest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	waiting := EtcdService{State: EtcdPreparing, Empty: true, BootID: "a"}
	sent := func(ago time.Duration, boot string, accepted bool) *v1alpha1.BootstrapRequest {
		return &v1alpha1.BootstrapRequest{Time: metav1.NewTime(now.Add(-ago)), BootID: boot, Accepted: accepted}
	}
	cases := map[string]struct {
		reason  string
		service EtcdService
		last    *v1alpha1.BootstrapRequest
		want    RequestStep
	}{
		"First":      {"no request has been sent", waiting, nil, RequestSend},
		"Early":      {"its disk may not be mounted yet", EtcdService{State: "Waiting"}, nil, RequestWait},
		"Pulling":    {"another request would start the pull again", waiting, sent(time.Minute, "a", true), RequestWait},
		"Booted":     {"the node had the request in memory only", waiting, sent(time.Second, "b", true), RequestSend},
		"Nothing":    {"the request had no effect within minutes", waiting, sent(acceptedTimeout, "a", true), RequestSend},
		"Unanswered": {"the node may have accepted it", waiting, sent(time.Second, "a", false), RequestWait},
		"Lost":       {"the request may be lost", waiting, sent(unansweredTimeout, "a", false), RequestSend},
		"Data":       {"it has the data of an etcd that is about to run", EtcdService{State: EtcdPreparing, BootID: "b"}, sent(time.Hour, "a", true), RequestDone},
		"Running":    {"etcd runs", EtcdService{State: EtcdRunning}, sent(time.Second, "a", true), RequestDone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := NextBootstrapRequest(tc.service, tc.last, now); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
