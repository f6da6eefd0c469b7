package app

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/apiserver"
)

// approved is an answer of a ticketing system, in structured mode.
func approved(id, data string) string {
	return `{"specversion":"1.0","type":"io.vitistack.workorder.approved","source":"/ticketing/corp","id":"` + id + `",
		"subject":"/apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop","datacontenttype":"application/json","data":` + data + `}`
}

// happened gives an event a time.
func happened(body, at string) string {
	return strings.Replace(body, `"subject"`, `"time":"`+at+`","subject"`, 1)
}

const structured = "application/cloudevents+json"

// signingKeys are the keys that functions accept.
func (s *env) signingKeys() (keys []ed25519.PublicKey) {
	s.t.Helper()
	client, err := apiserver.New(s.api.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	kept, err := client.SigningKeys(platformNamespace()).ConfigMap(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, text := range kept.Data {
		key, err := dsse.ParsePublic(text)
		if err != nil {
			s.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func TestIngest(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	key, line := keyLine(t, "ticketing", "events")
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	send := func(body, media string, headers ...string) reply {
		t.Helper()
		return s.do(http.MethodPost, "/api/v1/events", body, append([]string{"Content-Type", media, "Authorization", "Bearer " + key}, headers...)...)
	}
	good := `{"uid":"u","generation":1,"by":"kari@example.com"}`
	first := send(approved("1", good), structured)
	if first.StatusCode != http.StatusAccepted || first.object(t)["accepted"] != 1.0 {
		t.Fatalf("first: %s %s", first.Status, first.body)
	}
	if again := send(approved("1", good), structured); again.object(t)["duplicates"] != 1.0 {
		t.Errorf("the same again: %s", again.body)
	}
	binary := send(good, "application/json", "Ce-Specversion", "1.0", "Ce-Type", events.TypeWorkorderApproved, "Ce-Source", "/ticketing/corp", "Ce-Id", "2")
	if binary.StatusCode != http.StatusAccepted {
		t.Errorf("binary mode: %s %s", binary.Status, binary.body)
	}
	batch := send("["+approved("1", good)+","+approved("3", good)+","+approved("4", good)+"]", "application/cloudevents-batch+json")
	if got := batch.object(t); got["accepted"] != 2.0 || got["duplicates"] != 1.0 {
		t.Errorf("batch: %s", batch.body)
	}
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, b.ids()); diff != "" {
		t.Errorf("at the broker (-want +got):\n%s", diff)
	}
	keys := s.signingKeys()
	for _, e := range b.events {
		if err := dsse.Verify(e, keys); err != nil {
			t.Errorf("event %s: functions would not believe it: %v", e.ID(), err)
		}
	}
	if n := len(s.get("/api/v1/events?type=io.vitistack.*&cluster=shop").object(t)["events"].([]any)); n != 3 {
		t.Errorf("%d events about the cluster are in the history", n)
	}
	late := send(happened(approved("5", good), time.Now().Add(-40*24*time.Hour).Format(time.RFC3339)), structured)
	if late.StatusCode != http.StatusAccepted {
		t.Errorf("of a system that was cut off for long: %s %s", late.Status, late.body)
	}
	if err := s.app.history.Expire(t.Context(), time.Now().Add(-30*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again := send(happened(approved("5", good), time.Now().Add(-40*24*time.Hour).Format(time.RFC3339)), structured); again.object(t)["duplicates"] != 1.0 {
		t.Errorf("the late event again, after the history has expired: %s", again.body)
	}
	cases := map[string]struct {
		reason, body, media string
		status              int
		pointers            []string
	}{
		"Type":     {reason: "a type that only the stack sends", body: strings.Replace(approved("9", good), "workorder.approved", "network.requested", 1), media: structured, status: 422, pointers: []string{"/type"}},
		"Missing":  {reason: "a field that is missing", body: approved("9", `{"uid":"u","by":"me"}`), media: structured, status: 422, pointers: []string{"/data"}},
		"Wrong":    {reason: "a field of the wrong type", body: approved("9", `{"uid":"u","generation":"1","by":"me"}`), media: structured, status: 422, pointers: []string{"/data/generation"}},
		"Unknown":  {reason: "a field that does not exist", body: approved("9", `{"uid":"u","generation":1,"by":"me","colour":"red"}`), media: structured, status: 422, pointers: []string{"/data"}},
		"InBatch":  {reason: "one of a batch", body: "[" + approved("8", good) + "," + approved("9", `{"uid":"","generation":1,"by":"me"}`) + "]", media: "application/cloudevents-batch+json", status: 422, pointers: []string{"/1/data/uid"}},
		"LongID":   {reason: "an id that is too long", body: approved(strings.Repeat("x", 300), good), media: structured, status: 422, pointers: []string{"/id"}},
		"Ahead":    {reason: "a time that is still to come", body: happened(approved("9", good), time.Now().Add(48*time.Hour).Format(time.RFC3339)), media: structured, status: 422, pointers: []string{"/time"}},
		"Year10k":  {reason: "a time that is in the year 10000 in UTC", body: happened(approved("9", good), "9999-12-31T23:59:59-23:59"), media: structured, status: 422, pointers: []string{"/time"}},
		"Unset":    {reason: "the time of a clock that is not set", body: happened(approved("9", good), "1970-01-01T00:00:00Z"), media: structured, status: 422, pointers: []string{"/time"}},
		"NoBatch":  {reason: "no list", body: "{}", media: "application/cloudevents-batch+json", status: 400},
		"Empty":    {reason: "an empty batch", body: "[]", media: "application/cloudevents-batch+json", status: 400},
		"NoEvent":  {reason: "no event", body: "{}", media: "application/json", status: 415},
		"NoJSON":   {reason: "no JSON", body: "{", media: structured, status: 400},
		"NotData":  {reason: "data that is no object", body: approved("9", `"text"`), media: structured, status: 422, pointers: []string{"/data"}},
		"UTF8":     {reason: "data that no database takes", body: "{\"uid\":\"\xff\",\"generation\":1,\"by\":\"me\"}", media: "application/json", status: 400},
		"TooLarge": {reason: "an event that is too large", body: approved("9", `{"uid":"`+strings.Repeat("x", 1<<20)+`"}`), media: structured, status: 413},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if name == "UTF8" {
				headers = []string{"Ce-Specversion", "1.0", "Ce-Type", events.TypeWorkorderApproved, "Ce-Source", "/ticketing/corp", "Ce-Id", "9"}
			}
			r := send(tc.body, tc.media, headers...)
			if r.StatusCode != tc.status {
				t.Fatalf("%s: %s %s", tc.reason, r.Status, r.body)
			}
			var got []string
			list, _ := r.object(t)["errors"].([]any)
			for _, e := range list {
				got = append(got, e.(map[string]any)["pointer"].(string))
			}
			if diff := cmp.Diff(tc.pointers, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", tc.reason, diff, r.body)
			}
		})
	}
	if n := len(b.ids()); n != 5 {
		t.Errorf("something that was refused is at the broker: %v", b.ids())
	}
}

func TestIngestWhileTheBrokerFails(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	key, line := keyLine(t, "ticketing", "events")
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	b.mu.Lock()
	b.fails = 1
	b.mu.Unlock()
	send := func() reply {
		return s.do(http.MethodPost, "/api/v1/events", approved("1", `{"uid":"u","generation":1,"by":"me"}`), "Content-Type", structured, "Authorization", "Bearer "+key)
	}
	if r := send(); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("while the broker fails: %s %s", r.Status, r.body)
	}
	if r := send(); r.StatusCode != http.StatusAccepted || r.object(t)["accepted"] != 1.0 {
		t.Errorf("afterwards: %s %s", r.Status, r.body)
	}
	alone := start(t, "--auth.keys="+line)
	r := alone.do(http.MethodPost, "/api/v1/events", approved("1", `{"uid":"u","generation":1,"by":"me"}`), "Content-Type", structured, "Authorization", "Bearer "+key)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "K_SINK") {
		t.Errorf("without a broker: %s %s", r.Status, r.body)
	}
}

func TestSignedEvents(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	secret := standardwebhooks.Secret("0123456789abcdef0123456789abcdef")
	s := start(t, "--broker.sink="+b.URL, "--ingest.secrets=whsec_"+base64.StdEncoding.EncodeToString(secret))
	body := approved("1", `{"uid":"u","generation":1,"by":"me"}`)
	send := func(signature string, at time.Time) reply {
		t.Helper()
		return s.do(http.MethodPost, "/api/v1/events", body, "Content-Type", structured, standardwebhooks.HeaderID, "m1",
			standardwebhooks.HeaderTimestamp, jsonNumber(at.Unix()), standardwebhooks.HeaderSignature, signature)
	}
	now, old := time.Now(), time.Now().Add(-time.Hour)
	if r := send(secret.Sign("m1", now, []byte(body)), now); r.StatusCode != http.StatusAccepted {
		t.Errorf("signed: %s %s", r.Status, r.body)
	}
	if r := send(secret.Sign("m1", old, []byte(body)), old); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("replayed: %s", r.Status)
	}
	if r := send(standardwebhooks.Secret("another secret of thirty-two byte").Sign("m1", now, []byte(body)), now); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("forged: %s", r.Status)
	}
	if r := s.do(http.MethodPost, "/api/v1/events", body, "Content-Type", structured); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("unsigned: %s", r.Status)
	}
}

func jsonNumber(n int64) string {
	b, _ := json.Marshal(n)
	return string(b)
}

// TestConversationWithPython lets a ticketing system and an IPAM answer that are
// written in Python, with its standard library only.
func TestConversationWithPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is not installed: run apt-get install python3")
	}
	b := newBroker(t)
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	key, line := keyLine(t, "ipam", "events")
	s := start(t, "--broker.sink="+b.URL, "--ingest.secrets="+secret, "--auth.keys="+line)
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "answer.py"), s.url)
	cmd.Env = []string{"VITISTACK_SECRET=" + secret, "VITISTACK_KEY=" + key}
	cmd.Stdin = bytes.NewReader(exampleEvents(t, events.TypeWorkorderRequested, events.TypeNetworkRequested))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the client: %v\n%s", err, out)
	}
	var got []string
	b.mu.Lock()
	for _, e := range b.events {
		got = append(got, e.Type()+" "+e.Subject())
	}
	b.mu.Unlock()
	want := []string{
		"io.vitistack.workorder.approved /apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop",
		"io.vitistack.network.provisioned /apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/prod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("at the broker (-want +got):\n%s\n%s", diff, out)
	}
}

// exampleEvents are documented examples, one in each line.
func exampleEvents(t *testing.T, types ...string) []byte {
	t.Helper()
	var all bytes.Buffer
	for _, eventType := range types {
		example, err := events.Examples.ReadFile("examples/" + eventType + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&all, example); err != nil {
			t.Fatal(err)
		}
		all.WriteByte('\n')
	}
	return all.Bytes()
}
