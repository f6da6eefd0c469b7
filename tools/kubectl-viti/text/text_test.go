package text_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ref(kind, name string) cause.Ref { return cause.Ref{Kind: kind, Namespace: "shop", Name: name} }

func TestAge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		because string
		age     time.Duration
		want    string
	}{
		{"seconds", 45 * time.Second, "45s"},
		{"minutes", 5 * time.Minute, "5m"},
		{"hours", 30 * time.Hour, "30h"},
		{"days", 72 * time.Hour, "3d"},
		{"the clocks of two computers differ", -time.Minute, "0s"},
	} {
		if got := text.Age(now.Add(-tc.age), now); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.because, got, tc.want)
		}
	}
	if got := text.Age(time.Time{}, now); got != "" {
		t.Errorf("an unknown time has no age: %s", got)
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	since := now.Add(-5 * time.Minute)
	chain := []cause.Link{
		{Ref: ref("Machine", "web"), Reason: "WaitingForAddress", Message: "PoolExhausted: no \x1b[2Jaddress is\u202e free\r", Since: since, Owner: cause.NoAction, Remedy: "See the NetworkConfiguration."},
		{Ref: ref("NetworkConfiguration", "web"), Reason: "PoolExhausted", Message: "no \x1b[2Jaddress is\u202e free\r", Since: since, Owner: cause.NetworkTeam, Remedy: "Enlarge the pool."},
	}
	var got bytes.Buffer
	if err := text.Chain(&got, chain, []cause.Warning{{Type: "RestartRequired", Reason: "SpecChanged", Message: "cpu", Owner: cause.Requester, Remedy: "Restart it."}}, now); err != nil {
		t.Fatal(err)
	}
	const want = `Machine shop/web is not Ready: WaitingForAddress (for 5m)
└ NetworkConfiguration shop/web is not Ready: PoolExhausted (for 5m)
    no [2Jaddress is free

Cause:  NetworkConfiguration shop/web
Turn:   network team
Remedy: Enlarge the pool.
More:   https://github.com/vitistack/stack/blob/main/docs/reference/conditions.md#poolexhausted

Also:   RestartRequired (SpecChanged): cpu
Turn:   requester
Remedy: Restart it.
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	err := text.Problems(&got, []cause.Problem{{
		Link:      cause.Link{Ref: ref("Machine", "web-0"), Reason: "NoCapacity", Message: strings.Repeat("long ", 30), Since: now.Add(-time.Hour), Owner: cause.PlatformTeam, Remedy: "Add hosts."},
		Condition: "Ready", Others: []cause.Ref{ref("Machine", "web-1")}, Blocks: []cause.Ref{ref("A", "1"), ref("A", "2"), ref("A", "3"), ref("A", "4"), ref("A", "5")},
	}}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The platform team has to act:\n  Machine shop/web-0 and 1 more: NoCapacity (for 60m)\n", "    → Add hosts.\n", "    blocks A shop/1, A shop/2, A shop/3, A shop/4 and 1 more\n"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is missing in\n%s", want, got.String())
		}
	}
	for line := range strings.Lines(got.String()) {
		if len(line) > 120 {
			t.Errorf("a line has %d characters: %s", len(line), line)
		}
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	err := text.Tree(&got, cause.Node{Ref: ref("Machine", "web"), State: "Running", Detail: "10.0.0.3", Parts: []cause.Part{{Name: "task", Detail: "create 7"}}, Below: []cause.Node{
		{Ref: ref("NetworkConfiguration", "web"), State: "Ready", Below: []cause.Node{{Ref: ref("IPAllocation", "web-eth0"), State: "Allocated"}}},
		{Ref: cause.Ref{Kind: "MachineProvider", Name: "pve"}, State: "Ready", Shared: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `Machine web                 Running    10.0.0.3
├ task                                 create 7
├ NetworkConfiguration web  Ready
│ └ IPAllocation web-eth0   Allocated
└ uses MachineProvider pve  Ready
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
