package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/external"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// externalIPAM is a running events/examples/ipam.py, which receives the events of the function. Its
// answers reach the function through a gateway that requires a key and signs them.
type externalIPAM struct {
	t      *testing.T
	url    string
	server *apiserver.Server
	f      *function
	key    string
	// away is how often the gateway does not answer. lost is how many accepted answers the Broker
	// loses.
	away, lost atomic.Int64
	// taken has the IDs of accepted answers: the gateway accepts each once.
	taken sync.Map
}

// Send delivers an event as the Broker does, and retries it if the IPAM asks for that.
func (i *externalIPAM) Send(ctx context.Context, e event.Event) error {
	conformsToSchema(i.t, e)
	err := i.deliver(ctx, e)
	for range 3 {
		if err == nil {
			return nil
		}
		err = i.deliver(ctx, e)
	}
	return err
}

func (i *externalIPAM) deliver(ctx context.Context, e event.Event) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, nil)
	if err != nil {
		return err
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusAccepted {
		return errors.New("the IPAM answers " + res.Status)
	}
	return nil
}

// ServeHTTP accepts answers as the gateway does.
func (i *externalIPAM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i.away.Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/events" || r.Header.Get("Authorization") != "Bearer "+i.key {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	said, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	conformsToSchema(i.t, *said)
	i.server.Sign(i.t, said)
	w.WriteHeader(http.StatusAccepted)
	if _, again := i.taken.LoadOrStore(said.Source()+" "+said.ID(), true); again || i.lost.Add(-1) >= 0 {
		return
	}
	go func() { _, _ = i.f.handle(i.t.Context(), *said) }()
}

// conformsToSchema validates an event as the gateway does.
func conformsToSchema(t *testing.T, e event.Event) {
	t.Helper()
	file, err := events.Schemas.ReadFile("schemas/" + e.Type() + ".json")
	if err != nil {
		t.Error(err)
		return
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(file))
	if err != nil {
		t.Error(err)
		return
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Error(err)
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Data()))
	if err == nil {
		err = c.MustCompile("schema.json").Validate(value)
	}
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		t.Errorf("event %s: %s: %v", e.Type(), e.Data(), err)
	}
}

func startIPAM(t *testing.T, file, gateway, key string) (string, func()) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "python3", "../../events/examples/ipam.py")
	command.Env = append(os.Environ(), "PORT=0", "IPAM_PREFIX=10.20.0.0/23", "IPAM_FILE="+file, "GATEWAY_URL="+gateway, "GATEWAY_KEY="+key)
	var log bytes.Buffer
	command.Stderr = &log
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { _ = command.Process.Kill(); _ = command.Wait() }
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), stop
}

// TestExampleIPAM provides networks with an IPAM written in Python.
func TestExampleIPAM(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	file := filepath.Join(t.TempDir(), "segments.json")
	i := &externalIPAM{t: t, server: w.server, f: w.f, key: rand.Text()}
	gateway := httptest.NewServer(i)
	t.Cleanup(gateway.Close)
	var stop func()
	i.url, stop = startIPAM(t, file, gateway.URL, i.key)
	w.f.sender = i
	ask := func(name, size string) {
		spec := asks("corp-ipam")
		spec.NetworkProvisioning.Parameters = map[string]string{"size": size}
		w.network(name, spec)
		w.reconcile(name)
	}
	until := func(name, reason string) *v1alpha2.NetworkNamespace {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			nn := w.get(name)
			_, got, message := ready(nn)
			if got == reason {
				return nn
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s %s, want %s", name, got, message, reason)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	i.away.Store(1)
	i.lost.Store(1)
	ask("one", "24")
	until("one", provider.ReasonWorking)
	w.clock.Pass(2 * external.AnswerTime)
	w.reconcile("one")
	one := until("one", reasonProvisioned)
	stop()
	i.url, _ = startIPAM(t, file, gateway.URL, i.key)
	ask("two", "24")
	two := until("two", reasonProvisioned)
	if one.Status.IPv4Prefix != "10.20.0.0/24" || two.Status.IPv4Prefix != "10.20.1.0/24" || one.Status.VLANID == two.Status.VLANID || one.Status.NamespaceID == "" {
		t.Errorf("got %+v and %+v", one.Status, two.Status)
	}
	ask("three", "24")
	until("three", "NoFreePrefix")
	ask("four", "many")
	until("four", "BadSize")
	w.delete(one)
	if w.reconcile("one") != nil {
		t.Fatal("one network must be deleted")
	}
	w.clock.Pass(provider.MaxDelay + 2*time.Second)
	w.reconcile("three")
	three := until("three", reasonProvisioned)
	if three.Status.IPv4Prefix != "10.20.0.0/24" {
		t.Errorf("a released prefix is free: got %s", three.Status.IPv4Prefix)
	}
}
