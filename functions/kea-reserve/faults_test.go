package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestErrorClasses has Kea fail in each possible way during a reservation, and checks the outcome of
// the delivery and the condition.
func TestErrorClasses(t *testing.T) {
	t.Parallel()
	const ask = "ask the primary Kea server for "
	const post = ": POST 127.0.0.1/: "
	cases := map[string]struct {
		reason string
		// rule is how the simulator fails, and serve is a server that answers instead of it.
		rule  faults.Rule
		serve http.HandlerFunc
		url   string
		retry bool
		why   string
		says  string
	}{
		"Refused":     {reason: "the port is closed", url: "http://" + closedPort(t), retry: true, why: "KeaUnavailable", says: ask + "list-commands" + post + "connection refused"},
		"Timeout":     {reason: "the server hangs", rule: faults.Rule{Operation: "list-commands", Latency: "1m"}, retry: true, why: "KeaUnavailable", says: "the request timed out"},
		"Dropped":     {reason: "the connection breaks", rule: faults.Rule{Operation: "list-commands", Error: "drop"}, retry: true, why: "KeaUnavailable", says: "the server closed the connection before it had answered"},
		"Later":       {reason: "the server fails after some requests", rule: faults.Rule{Operation: "reservation-get-all", Error: "503"}, retry: true, why: "KeaUnavailable", says: ask + "reservation-get-all"},
		"Offline":     {reason: "the agent answers, but the DHCP server does not", rule: faults.Rule{Operation: "list-commands", Error: "offline"}, retry: true, why: "KeaUnavailable", says: "start kea-dhcp4"},
		"OfflineNow":  {reason: "the DHCP server stops during the delivery", rule: faults.Rule{Operation: "reservation-get-all", Error: "offline"}, retry: true, why: "KeaUnavailable", says: ask + "reservation-get-all: the DHCP server does not answer its control agent: start kea-dhcp4"},
		"OfflineAdd":  {reason: "the agent has had no answer in time", rule: faults.Rule{Operation: "reservation-add", Error: "offline"}, retry: true, why: "KeaUnavailable", says: ask + "reservation-add: the DHCP server does not answer its control agent"},
		"401":         {reason: "the credentials are wrong", rule: faults.Rule{Error: "401"}, why: "KeaUnauthorized", says: "set KEA_BASIC_AUTH_USERNAME"},
		"403":         {reason: "the user lacks rights", rule: faults.Rule{Error: "403"}, why: "KeaUnauthorized", says: "the server answered 403 Forbidden"},
		"404":         {reason: "the path of the URL is wrong", rule: faults.Rule{Error: "404"}, why: "KeaUnexpectedAnswer", says: "set KEA_URL"},
		"409":         {reason: "an unexpected status", rule: faults.Rule{Error: "409"}, why: "KeaUnexpectedAnswer", says: "409 Conflict"},
		"422":         {reason: "an unexpected status", rule: faults.Rule{Error: "422"}, why: "KeaUnexpectedAnswer", says: "422 Unprocessable Entity"},
		"429":         {reason: "a proxy limits the rate", rule: faults.Rule{Error: "429"}, retry: true, why: "KeaUnavailable", says: "429 Too Many Requests"},
		"500":         {reason: "an error of the server", rule: faults.Rule{Error: "500"}, retry: true, why: "KeaUnavailable", says: "500 Internal Server Error"},
		"502":         {reason: "a proxy does not reach Kea", rule: faults.Rule{Error: "502"}, retry: true, why: "KeaUnavailable", says: "502 Bad Gateway"},
		"302":         {reason: "a proxy requires a login", rule: faults.Rule{Error: "302"}, why: "KeaUnexpectedAnswer", says: "302 Found"},
		"HTML":        {reason: "a web server answers", rule: faults.Rule{Error: "garbage"}, why: "KeaUnexpectedAnswer", says: "the answer is not JSON"},
		"OtherJSON":   {reason: "another API answers", serve: says(`{"hello":"world"}`), why: "KeaUnexpectedAnswer", says: "set KEA_URL"},
		"EmptyList":   {reason: "no server answers for the service", serve: says(`[]`), why: "KeaUnexpectedAnswer", says: "the answer is not one of Kea's control API"},
		"OtherWords":  {reason: "the arguments do not belong to the command", serve: says(`[{"result":0,"arguments":{"a":1}}]`), why: "KeaUnexpectedAnswer", says: "not one of Kea's control API"},
		"Unsupported": {reason: "the server lacks the required commands", serve: says(`[{"result":0,"arguments":["list-commands","version-get"]}]`), why: "KeaUnsupported", says: "load libdhcp_host_cmds.so and libdhcp_subnet_cmds.so"},
		"Forbidden":   {reason: "a command is listed, but not allowed", rule: faults.Rule{Operation: "subnet4-list", Error: "403"}, why: "KeaUnauthorized", says: ask + "subnet4-list"},
		"Result1":     {reason: "Kea rejects the reservation", rule: faults.Rule{Operation: "reservation-add", Error: "no room (<wire>:0:99)"}, why: "KeaRefused", says: ask + "reservation-add: refused with result 1: no room"},
		"Subnet":      {reason: "Kea rejects the subnet", rule: faults.Rule{Operation: "subnet4-add", Error: "no"}, why: "KeaRefused", says: ask + "subnet4-add: refused with result 1: no"},
		"Write":       {reason: "the reservation would be lost at a restart", rule: faults.Rule{Operation: "config-write", Error: "no disk"}, why: "KeaNotPersisted", says: "let the user that Kea runs as write its configuration file"},
		"TLS":         {reason: "the server speaks no TLS", url: "https", why: "KeaUntrusted", says: "the server does not speak TLS"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := simulate(t, sim.Kea3, stand.Options{})
			url := b.URL()
			switch {
			case tc.url == "https":
				url = strings.Replace(url, "http:", "https:", 1)
			case tc.url != "":
				url = tc.url
			case tc.serve != nil:
				server := httptest.NewServer(tc.serve)
				t.Cleanup(server.Close)
				url = server.URL
			}
			w := newEnv(t, []string{url}, "KEA_TIMEOUT_SECONDS=1")
			w.must(b.faults.Set(tc.rule))
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("vm", []string{macA}, nil)
			err := w.deliver("NetworkConfiguration", "vm", events.TypeRefAdd)
			if (err != nil) != tc.retry || events.IsPermanent(err) {
				t.Errorf("%s: got error %v, want a redelivery %t", tc.reason, err, tc.retry)
			}
			nc := w.get("vm")
			if got := ready(nc); !strings.HasPrefix(got, "False "+tc.why+": ") || !strings.Contains(got, tc.says) {
				t.Errorf("%s: got Ready %s", tc.reason, got)
			}
			if nc.Status.Phase != v1alpha1.NetworkConfigurationPending || nc.Status.NextCheckTime == nil || len(nc.Status.NetworkInterfaces) != 0 {
				t.Errorf("%s: got phase %s, next check %v, %d interfaces", tc.reason, nc.Status.Phase, nc.Status.NextCheckTime, len(nc.Status.NetworkInterfaces))
			}
			_ = w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate)
			if again := w.get("vm"); again.ResourceVersion != nc.ResourceVersion {
				t.Errorf("%s: a repeated failure wrote: %s after %s", tc.reason, ready(again), ready(nc))
			}
			if tc.rule.Error == "" {
				return
			}
			w.must(b.faults.Set())
			if got := addressOf(t, w.reconcile("vm"), 0); hosts(t, b)[macA] != got || w.get("vm").Status.NextCheckTime != nil {
				t.Errorf("%s: after the recovery, the status has %s and Kea %v", tc.reason, got, hosts(t, b))
			}
		})
	}
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestLostAnswers loses the answer to each command in turn, during a reservation and during its
// release.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	commands := map[sim.Generation][]string{
		sim.Kea2: {"list-commands", "config-get", "lease4-get-all", "config-test", "config-set", "config-write"},
		sim.Kea3: {"list-commands", "subnet4-list", "subnet4-add", "lease4-get-all", "reservation-get-all", "reservation-add",
			"reservation-get-by-id", "reservation-del", "config-write"},
	}
	for generation, names := range commands {
		for _, command := range names {
			for _, lost := range []string{"drop", "no luck"} {
				t.Run(fmt.Sprintf("%s/%s/%s", generation, command, lost), func(t *testing.T) {
					t.Parallel()
					b := simulate(t, generation, stand.Options{})
					w := newEnv(t, []string{b.URL()})
					w.network("net", "10.77.0.0/24", nil)
					w.configuration("vm", []string{macA, macB}, nil)
					rule := faults.Rule{Operation: command, Error: lost, After: true, Times: 1}
					w.must(b.faults.Set(rule))
					redeliver(t, w, func() bool { return strings.HasPrefix(ready(w.get("vm")), "True") })
					b.Restart(t)
					if got := hosts(t, b); len(got) != 2 || got[macA] != addressOf(t, w.get("vm"), 0) || got[macB] != addressOf(t, w.get("vm"), 1) {
						t.Errorf("Kea has %v", got)
					}
					w.delete("vm")
					w.must(b.faults.Set(rule))
					redeliver(t, w, func() bool { return w.isDeleted("vm") })
					b.Restart(t)
					if got := hosts(t, b); len(got) != 0 {
						t.Errorf("Kea still has %v", got)
					}
				})
			}
		}
	}
}

// redeliver delivers as a broker does, a limited number of times.
func redeliver(t *testing.T, w *env, done func() bool) {
	t.Helper()
	const attempts = 4
	for range attempts {
		_ = w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate)
		if done() {
			return
		}
	}
	t.Fatalf("not done after %d deliveries: %s", attempts, ready(w.get("vm")))
}

// TestNotPersisted has a real Kea that may not write its configuration file.
func TestNotPersisted(t *testing.T) {
	t.Parallel()
	for _, generation := range []stand.Generation{stand.Kea2, stand.Kea3} {
		t.Run(fmt.Sprint("Kea", generation), func(t *testing.T) {
			t.Parallel()
			b := stand.Start(t, generation, stand.Options{})
			w := newEnv(t, []string{b.URL()})
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("vm", []string{macA}, nil)
			undo := b.Protect(t)
			if nc := w.reconcile("vm"); !strings.HasPrefix(ready(nc), "False KeaNotPersisted: ") || len(nc.Status.NetworkInterfaces) != 0 {
				t.Errorf("got Ready %s, interfaces %v", ready(nc), nc.Status.NetworkInterfaces)
			}
			undo()
			want := addressOf(t, w.reconcile("vm"), 0)
			b.Restart(t)
			if got := hosts(t, b)[macA]; got != want {
				t.Errorf("after a restart Kea has %q, want %s", got, want)
			}
		})
	}
}

// TestOffline has a real control agent without its DHCP server.
func TestOffline(t *testing.T) {
	t.Parallel()
	b := stand.Start(t, stand.Kea2, stand.Options{})
	w := newEnv(t, []string{b.URL()})
	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	b.StopDHCP()
	if err := w.deliver("NetworkConfiguration", "vm", events.TypeRefAdd); err == nil || events.IsPermanent(err) {
		t.Errorf("the broker must redeliver, got %v", err)
	}
	want := "False KeaUnavailable: ask the primary Kea server for list-commands: the DHCP server does not answer its control agent: start kea-dhcp4"
	if got := ready(w.get("vm")); got != want {
		t.Errorf("got Ready %s, want %s", got, want)
	}
}

// TestSlow has one of two servers hang for longer than a delivery may take.
func TestSlow(t *testing.T) {
	t.Parallel()
	primary, secondary := simulate(t, sim.Kea3, stand.Options{}), simulate(t, sim.Kea3, stand.Options{})
	w := newEnv(t, []string{primary.URL(), secondary.URL()}, "KEA_TIMEOUT_SECONDS=1")
	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	w.must(primary.faults.Set(faults.Rule{Latency: "1h"}))
	nc := w.reconcile("vm")
	if got := condition(nc, conditionRedundant); addressOf(t, nc, 0) != hosts(t, secondary)[macA] || !strings.Contains(got, "the request timed out") {
		t.Errorf("got %s, Redundant %s, and the secondary has %v", addressOf(t, nc, 0), got, hosts(t, secondary))
	}
}
