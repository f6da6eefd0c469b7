package nodeevents

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

func TestRelevanceOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		event  proto.Message
		want   relevance
	}{
		"Status":   {"the machine is ready, or waits for something else than before", statusEvent, machineChanged},
		"Etcd":     {"a bootstrap continues when etcd runs", serviceEvent("etcd", machine.ServiceStateEvent_RUNNING), serviceChanged},
		"Pulled":   {"etcd can be bootstrapped when its image is pulled", serviceEvent("etcd", machine.ServiceStateEvent_PREPARING), serviceChanged},
		"Apid":     {"the node answers", serviceEvent("apid", machine.ServiceStateEvent_RUNNING), serviceChanged},
		"Kubelet":  {"the kubelet's image does not exist", serviceEvent("kubelet", machine.ServiceStateEvent_FAILED), serviceChanged},
		"Waiting":  {"the service waits for another one, whose event follows", serviceEvent("kubelet", machine.ServiceStateEvent_WAITING), irrelevant},
		"Service":  {"no phase waits for the clock", serviceEvent("timed", machine.ServiceStateEvent_RUNNING), irrelevant},
		"Sequence": {"the status follows", &machine.SequenceEvent{Sequence: "boot"}, irrelevant},
		"Task":     {"the status follows", &machine.TaskEvent{Task: "startAllServices"}, irrelevant},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := anypb.New(tc.event)
			if err != nil {
				t.Fatal(err)
			}
			if got := relevanceOf(data); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
	for reason, tc := range map[string]struct {
		data *anypb.Any
		want relevance
	}{
		"an event without data":            {nil, irrelevant},
		"an unknown type":                  {&anypb.Any{TypeUrl: "type.googleapis.com/evil.Event", Value: []byte("x")}, irrelevant},
		"a service that cannot be decoded": {&anypb.Any{TypeUrl: "type.googleapis.com/machine.ServiceStateEvent", Value: []byte{0xff}}, invalid},
	} {
		if got := relevanceOf(tc.data); got != tc.want {
			t.Errorf("%s: got %d, want %d", reason, got, tc.want)
		}
	}
}

// TestWindows requests reconciles at times, and takes those that are due.
func TestWindows(t *testing.T) {
	t.Parallel()
	w, began := newWindows(), time.Now()
	booting, running := aCluster("booting", false), aCluster("running", true)
	at := func(reason string, after time.Duration, next time.Duration, want ...string) {
		t.Helper()
		due, ends := w.take(began.Add(after))
		var names []string
		for _, o := range due {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
		if (next == 0) != ends.IsZero() || next != 0 && !ends.Equal(began.Add(next)) {
			t.Errorf("%s: the next window ends at %s, want after %s", reason, ends, next)
		}
	}
	at("nothing was requested", 0, 0)
	w.add(booting)
	w.add(running)
	at("the first events of both clusters", 0, 0, "booting", "running")
	for range 100 {
		w.add(booting)
		w.add(running)
	}
	at("both have been requested a moment ago", time.Second/2, window)
	at("the window of the cluster that boots has ended", window, readyWindow, "booting")
	at("it sends no event any more", 2*window, readyWindow)
	at("the window of the Ready cluster has ended", readyWindow, 0, "running")
	at("all windows have ended", time.Minute, 0)
	if len(w.open) != 0 {
		t.Errorf("%d windows are stored", len(w.open))
	}
}

func TestReadNodes(t *testing.T) {
	t.Parallel()
	leaving := aCluster("leaving", false)
	leaving.Deleting = true
	clusters := []*inventory.Object{aCluster("a", false), aCluster("b", true), leaving}
	machines := []*inventory.Object{
		aMachine("a", "a-cp-0", "10.0.0.1", "::ffff:10.0.0.2", "2001:db8::1", "not an address"),
		aMachine("a", "a-cp-1", "10.0.0.3"),
		aMachine("b", "b-cp-0", "10.0.0.3"),
		aMachine("a", "a-cp-2", "10.0.0.3"),
		aMachine("leaving", "leaving-cp-0", "10.0.0.4"),
		aMachine("gone", "gone-cp-0", "10.0.0.5"),
		aMachine("", "vm", "10.0.0.6"),
	}
	for i := range maxClusters + 1 {
		name := fmt.Sprint("many-", i)
		clusters = append(clusters, aCluster(name, false))
		machines = append(machines, aMachine(name, name, "10.0.0.7"))
	}
	first := readNodes(machines, clusters, nil)
	got := map[string][]string{}
	for a, n := range first {
		for _, o := range n.clusters {
			got[a.String()] = append(got[a.String()], o.Name)
		}
	}
	want := map[string][]string{"10.0.0.1": {"a"}, "10.0.0.2": {"a"}, "2001:db8::1": {"a"}, "10.0.0.3": {"a", "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	second := readNodes(machines[:1], clusters, first)
	if a := netip.MustParseAddr("10.0.0.1"); second[a].limit != first[a].limit || len(second) != 3 {
		t.Errorf("an address has another limit than before, or is kept without its Machine: %v", slices.Collect(maps.Keys(second)))
	}
}

func TestAddressOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[net.Addr]string{
		&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}:                   "10.0.0.1",
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "eth0"}:      "fe80::1",
		&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1").To16(), Port: 65535}: "10.0.0.1",
		&net.UnixAddr{Name: "socket"}:                                        "invalid IP",
	} {
		if got := addressOf(address).String(); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
