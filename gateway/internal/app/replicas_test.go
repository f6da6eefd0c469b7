package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(withAPIServer{m})) }

// withAPIServer runs tests that may share an API server.
type withAPIServer struct{ m *testing.M }

// Run runs the tests.
func (w withAPIServer) Run() int { return apiserver.Run(w.m) }

// follow reads the stream, and returns each line of data that has text in it.
func (s *env) follow(t *testing.T, query string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/stream?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		scan := bufio.NewScanner(res.Body)
		scan.Buffer(nil, 16<<20)
		for scan.Scan() {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
		<-done
	})
	for {
		select {
		case line := <-lines:
			if line == "event: hello" {
				return lines
			}
		case <-done:
			t.Fatal("the stream does not begin")
		}
	}
}

// TestReplicas runs two gateways with one PostgreSQL and one Redis. Every change
// is delivered to both, and has to be told once by the two together; the clients
// of both have to see it.
func TestReplicas(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	shared := servers.Redis(t)
	settings := []string{"--database.url=" + servers.Postgres(t), "--cache.redis.url=" + shared, "--broker.sink=" + b.URL}
	first := start(t, settings...)
	second := startCold(t, func(*fakeapi.Server) {}, settings...)
	second.waitReady()
	eventually(t, "the second database", func() bool { return second.get("/health/database").StatusCode == 200 })
	eventually(t, "both to hear each other", func() bool { return listeners(t, shared) == 2 })
	streams := []<-chan string{first.follow(t, "topics=events"), second.follow(t, "topics=events")}
	const machines = 10
	for _, s := range []*env{first, second} {
		for i := range machines {
			s.api.Put(t, "machines", newborn("m"+string(rune('0'+i)), "Running"))
		}
		eventually(t, "the machines", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == "10" })
	}
	var replies sync.Map
	var delivering sync.WaitGroup
	for _, s := range []*env{first, second} {
		for i := range machines {
			delivering.Go(func() {
				name := "m" + string(rune('0'+i))
				r := s.deliver("raw-"+name+s.url, events.TypeRefUpdate, "Machine", "team-a", name)
				if r.StatusCode == http.StatusOK {
					if _, twice := replies.LoadOrStore(name, true); twice {
						t.Errorf("%s was announced twice", name)
					}
				} else if r.StatusCode != http.StatusAccepted {
					t.Errorf("%s: %s", name, r.Status)
				}
			})
		}
	}
	delivering.Wait()
	eventually(t, "the history", func() bool {
		return first.get("/api/v1/events?type=infrastructure.machine.created").Header.Get("X-Total-Count") == "10"
	})
	for i, stream := range streams {
		seen := map[string]int{}
		for len(seen) < machines {
			var line string
			select {
			case line = <-stream:
			case <-time.After(3 * time.Minute):
				t.Fatalf("the clients of replica %d saw only %v", i, seen)
			}
			if strings.Contains(line, events.TypeMachineCreated) {
				_, rest, _ := strings.Cut(line, `"id":"`)
				id, _, _ := strings.Cut(rest, `"`)
				seen[id]++
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("the clients of replica %d saw %s %d times", i, id, n)
			}
		}
	}
}

// TestReplicaBehind runs two gateways with one database. The watch of the second has not reported a machine, and the last change of a
// cluster, that the first has recorded. The second records no deletion and no step back, so that the real deletion is an event.
func TestReplicaBehind(t *testing.T) {
	t.Parallel()
	database := "--database.url=" + servers.Postgres(t)
	first := start(t, database)
	// With a Broker, the second waits for two seconds before it records what it has watched.
	second := startCold(t, func(*fakeapi.Server) {}, database, "--broker.sink="+newBroker(t).URL)
	second.waitReady()
	eventually(t, "the second database", func() bool { return second.get("/health/database").StatusCode == 200 })
	shop := func(phase string) *v1alpha1.KubernetesCluster {
		c := aCluster("team-a", "shop", phase)
		c.CreationTimestamp = newborn("m", "").GetCreationTimestamp()
		return c
	}
	second.api.Put(t, "kubernetesclusters", shop("Pending"))
	count := func(s *env, name string) int {
		return strings.Count(string(s.get("/api/v1/events?name="+name).body), `"sequence"`)
	}
	eventually(t, "the new cluster", func() bool { return count(second, "shop") == 1 })
	for range 100 { // the versions of both API servers are counted apart
		first.api.Put(t, "kubernetesclusters", shop("Pending"))
	}
	machine, running := newborn("m1", "Running"), shop("Running")
	first.api.Put(t, "machines", machine)
	first.api.Put(t, "kubernetesclusters", running)
	eventually(t, "the machine and the change of the cluster", func() bool { return count(first, "m1") == 1 && count(first, "shop") == 2 })
	second.api.PutUnseen(t, "machines", machine)
	second.api.Put(t, "kubernetesclusters", shop("Provisioning")) // a state between the two that the first has recorded
	second.api.PutUnseen(t, "kubernetesclusters", running)
	eventually(t, "the state in between", func() bool {
		return second.app.store.Current().Collection(inventory.TopicClusters).Find("uid-shop").Phase == "Provisioning"
	})
	for name, kind := range map[string]string{"m1": "Machine", "shop": "KubernetesCluster"} {
		if r := second.deliver("raw-"+name, events.TypeRefUpdate, kind, "team-a", name); r.StatusCode != http.StatusAccepted {
			t.Errorf("%s: the replica that is behind answers %s %s", name, r.Status, r.body)
		}
	}
	if m, c := count(first, "m1"), count(first, "shop"); m != 1 || c != 2 {
		t.Errorf("after the events came to the replica that is behind there are %d of the machine and %d of the cluster: %s", m, c, first.get("/api/v1/events").body)
	}
	first.api.Delete("machines", "team-a", "m1")
	eventually(t, "the deletion", func() bool { return count(first, "m1") == 2 })
	// The etcd of an API server is restored: what it has is older than the record, and current.
	second.api.Put(t, "kubernetesclusters", shop("Restored"))
	eventually(t, "the change after a restore", func() bool { return count(second, "shop") == 3 })
}

// TestReplicasApart cuts a replica off Redis while it records an event. The clients of
// the other one hear that they have missed something, and find it in the history.
func TestReplicasApart(t *testing.T) {
	t.Parallel()
	shared := servers.Redis(t)
	address, err := url.Parse(shared)
	if err != nil {
		t.Fatal(err)
	}
	link := cutProxy(t, address.Host)
	database := "--database.url=" + servers.Postgres(t)
	first := start(t, database, "--cache.redis.url=redis://"+link.Addr().String()+address.Path)
	second := startCold(t, func(*fakeapi.Server) {}, database, "--cache.redis.url="+shared)
	second.waitReady()
	eventually(t, "the second database", func() bool { return second.get("/health/database").StatusCode == 200 })
	eventually(t, "both to hear each other", func() bool { return listeners(t, shared) == 2 })
	stream := second.follow(t, "topics=events")
	for i := range 20 {
		link.lead("")
		apart := time.Now().Truncate(time.Second)
		name := fmt.Sprintf("lonely-%d", i)
		first.api.Put(t, "machines", newborn(name, "Running"))
		eventually(t, "the event", func() bool {
			return strings.Contains(string(second.get("/api/v1/events?type=infrastructure.machine.created").body), name)
		})
		link.lead(address.Host)
		since, missed := missedSince(t, stream, apart)
		if !missed {
			continue // it was about to be told when Redis came back
		}
		r := second.get("/api/v1/events?since=" + since.Format(time.RFC3339))
		if !strings.Contains(string(r.body), name) {
			t.Errorf("the history since then lacks what was missed: %s", r.body)
		}
		return
	}
	t.Error("the event came each time, although the replica was cut off Redis")
}

// TestReplicasCountTogether pushes to one replica after the other what a process has
// counted, and both have it once.
func TestReplicasCountTogether(t *testing.T) {
	t.Parallel()
	shared := servers.Redis(t)
	settings := []string{"--database.url=" + servers.Postgres(t), "--cache.redis.url=" + shared}
	first := start(t, settings...)
	second := startCold(t, func(*fakeapi.Server) {}, settings...)
	second.waitReady()
	eventually(t, "both to hear each other", func() bool { return listeners(t, shared) == 2 })
	const series = `vitistack_function_deliveries_total{function="create-vm",outcome="done"%s} %d` + "\n"
	for i, s := range []*env{first, second} {
		path := fmt.Sprintf("/api/v1/import/prometheus?ended=%t", i == 1)
		if r := s.do(http.MethodPost, path, fmt.Sprintf(series, `,instance="a"`, i+3)); r.StatusCode != http.StatusNoContent {
			t.Fatalf("push: %s %s", r.Status, r.body)
		}
		for _, each := range []*env{first, second} {
			eventually(t, "the count", func() bool { return strings.Contains(string(each.get("/metrics").body), fmt.Sprintf(series, "", i+3)) })
		}
	}
}

// missedSince waits for a stream to say that something may be missing that came
// after a time, and returns since when, or for the event itself.
func missedSince(t *testing.T, stream <-chan string, after time.Time) (since time.Time, missed bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for named := false; ; {
		select {
		case line := <-stream:
			if strings.Contains(line, events.TypeMachineCreated) {
				return time.Time{}, false
			}
			data, isData := strings.CutPrefix(line, "data: ")
			if !named || !isData {
				named = line == "event: missed"
				continue
			}
			var told struct{ Since time.Time }
			if err := json.Unmarshal([]byte(data), &told); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			// The replica says the same when it begins to listen.
			if named = false; !told.Since.Before(after) {
				return told.Since, true
			}
		case <-deadline:
			t.Fatal("the clients of the other replica do not hear that they have missed something")
		}
	}
}

// TestPageAnotherReplica loses its replica, comes to another one, and shows what was
// recorded while it was away.
func TestPageAnotherReplica(t *testing.T) {
	t.Parallel()
	database := "--database.url=" + servers.Postgres(t)
	first := start(t, database)
	second := startCold(t, func(*fakeapi.Server) {}, database)
	second.waitReady()
	eventually(t, "the second database", func() bool { return second.get("/health/database").StatusCode == 200 })
	way := cutProxy(t, strings.TrimPrefix(first.url, "http://"))
	b := browser.New(t, "http://"+way.Addr().String(), 1200, 800)
	b.Open("#/events")
	one := newborn("one", "Running")
	first.api.Put(t, "machines", one) // what the second one records, this page does not hear without Redis
	b.Wait("the first event", `document.querySelector(".event-list")?.textContent.includes("one")`)
	second.api.Put(t, "machines", one)
	way.lead("")
	b.Wait("the end of the connection", `document.querySelector("#connection .state").dataset.state === "reconnecting"`)
	second.api.Put(t, "machines", newborn("two", "Running"))
	eventually(t, "the second event", func() bool { return strings.Contains(string(second.get("/api/v1/events").body), `"two"`) })
	way.lead(strings.TrimPrefix(second.url, "http://"))
	b.Wait("both events", `["one", "two"].every((name) => document.querySelector(".event-list").textContent.includes(name))`)
	if n := browser.Eval[int](b, `document.querySelectorAll(".event-list > li").length`); n != 2 {
		t.Errorf("%d events are shown:\n%s", n, b.Text(".event-list"))
	}
	b.Clean()
}

// listeners counts the replicas that hear what others tell over Redis.
func listeners(t *testing.T, address string) (n int64) {
	t.Helper()
	options, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	channels, err := client.PubSubChannels(t.Context(), fmt.Sprintf("*:%d:*", options.DB)).Result() // all databases have the same
	if err != nil {
		t.Fatal(err)
	}
	counts, err := client.PubSubNumSub(t.Context(), channels...).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range counts {
		n += count
	}
	return n
}

func TestDependenciesDown(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(*fakeapi.Server) {}, "--database.url=postgres://nobody@127.0.0.1:1/none?connect_timeout=1", "--cache.redis.url=redis://127.0.0.1:1/0")
	s.waitReady()
	s.api.Put(t, "kubernetesclusters", aCluster("team-a", "shop", "Running"))
	eventually(t, "reads to go on", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "1" })
	eventually(t, "the cache's failure to be known", func() bool { return s.get("/health/cache").StatusCode == 503 })
	health := s.get("/health")
	want := map[string]any{"database": "unhealthy", "cache": "unhealthy", "operators": map[string]any{"talos": "healthy"}}
	eventually(t, "health", func() bool { health = s.get("/health"); return cmp.Equal(want, health.object(t)["checks"]) })
	if health.StatusCode != 503 || health.object(t)["status"] != "unhealthy" {
		t.Errorf("health: %s %s", health.Status, health.body)
	}
	if r := s.get("/health/database"); r.StatusCode != 503 || r.object(t)["mode"] != "postgresql" || strings.Contains(string(r.body), "nobody@") {
		t.Errorf("database: %s %s", r.Status, r.body)
	}
	if r := s.get("/api/v1/events"); r.StatusCode != 503 {
		t.Errorf("the history: %s", r.Status)
	}
	if r := s.deliver("raw", events.TypeRefUpdate, "KubernetesCluster", "team-a", "shop"); r.StatusCode != 503 {
		t.Errorf("an event that cannot be recorded: %s", r.Status)
	}
	if r := s.get("/api/v1/clusters/uid-shop/timeline"); r.StatusCode != 200 || r.object(t)["partial"] == nil {
		t.Errorf("a timeline without events: %s %s", r.Status, r.body)
	}
}
