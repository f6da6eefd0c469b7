package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/servers"
	"github.com/vitistack/stack/tests/stand/stall"
)

// slack is what a busy machine may add to noticedWithin.
const slack = 10 * time.Second

// fault stops or ends a part of the installation.
type fault struct {
	part, name   string
	stop, resume func()
	// code is the code of /health during the fault, and says a part of the message.
	code int
	says string
}

// TestPartsThatFail stops Broker, event source, database and Redis in turn, so that they accept connections and do not answer, and kills
// database and Redis. Health, the page's data and REST show each, and the recovery.
func TestPartsThatFail(t *testing.T) {
	t.Parallel()
	// The Broker runs in the process of the engine.
	broker := stall.New(t, func(*http.Request) bool { return true })
	u := &env{engine.Start(t, "--ingress", broker.URL, "--config", "HEALTH_CHECK_INTERVAL=5s",
		"--config", "DATABASE_URL="+servers.Postgres(t), "--config", "REDIS_URL="+servers.Redis(t)), t}
	broker.Forward(t, u.Ingress())
	u.partIs("broker", "", "healthy")
	u.partIs("eventSource", "vitistack", "healthy")
	u.partIs("eventSource", "vitistack-resources", "healthy")
	u.partIs("resync", "", "healthy")

	page := browser.New(t, strings.TrimSuffix(u.Gateway(), "/"), 1200, 900)
	page.Open("#/overview")
	var source int
	for _, p := range u.Sources() {
		if strings.HasSuffix(p.Name, "vitistack-resources") {
			source = p.PID
		}
	}
	for _, f := range []fault{
		{"broker", "", broker.Stop, broker.Resume, http.StatusServiceUnavailable, "get broker,trigger,pingsource"},
		u.freeze("eventSource", "vitistack-resources", http.StatusOK, "describe apiserversource vitistack-resources", source),
		u.freeze("database", "postgresql", http.StatusServiceUnavailable, "DATABASE_URL", servers.PID(t, "postgresql")),
		u.freeze("cache", "redis", http.StatusOK, "REDIS_URL", servers.PID(t, "redis")),
		u.kill("database", "postgresql", http.StatusServiceUnavailable, "DATABASE_URL"),
		u.kill("cache", "redis", http.StatusOK, "REDIS_URL"),
	} {
		u.follow(page, f)
	}
}

// follow lets a part fail and go on, and checks what shows it and when.
func (u *env) follow(page *browser.Tab, f fault) {
	u.t.Helper()
	began := time.Now()
	f.stop()
	u.t.Cleanup(f.resume)
	d := u.partIs(f.part, f.name, "unhealthy")
	if noticed := d.Since.Sub(began); noticed > noticedWithin+slack {
		u.t.Errorf("%s: the outage shows after %s", f.part, noticed)
	} else {
		u.t.Logf("%s: the outage shows after %s", f.part, noticed.Round(time.Second))
	}
	if !strings.Contains(d.Message, f.says) {
		u.t.Errorf("%s says %q, which lacks %q", f.part, d.Message, f.says)
	}
	response, err := http.Get(u.Gateway() + "health")
	if err != nil {
		u.t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if response.StatusCode != f.code {
		u.t.Errorf("%s: /health is %d: %s", f.part, response.StatusCode, body)
	}
	if _, err := u.Ask("api/v1/clusters"); err != nil {
		u.t.Errorf("%s: REST of current objects: %v", f.part, err)
	}
	if got := u.summary(); !strings.Contains(got, f.says) {
		u.t.Errorf("%s: the page gets %s", f.part, got)
	}
	page.Wait(f.part+" among what needs attention", `[...document.querySelectorAll(".attention > li")].some((row) => row.innerText.includes(`+browser.Quote(f.says)+`))`)
	began = time.Now()
	f.resume()
	if noticed := u.partIs(f.part, f.name, "healthy").Since.Sub(began); noticed > noticedWithin+slack {
		u.t.Errorf("%s: the recovery shows after %s", f.part, noticed)
	}
	page.Wait("nothing that needs attention", `document.querySelectorAll(".attention > li").length === 0`)
	u.partIs("broker", "", "healthy") // no fault of one part is left as that of another
	u.partIs("eventSource", "vitistack", "healthy")
}

// freeze is the fault of a process, with the processes that it has started by then.
func (u *env) freeze(part, name string, code int, says string, pid int) fault {
	u.t.Helper()
	var stopped []int
	signal := func(s syscall.Signal) {
		for _, p := range stopped {
			_ = syscall.Kill(p, s) // a process that has ended needs none
		}
	}
	return fault{
		part, name,
		func() { stopped = withChildren(u.t, []int{pid}); signal(syscall.SIGSTOP) },
		func() { signal(syscall.SIGCONT) }, code, says,
	}
}

// kill is the fault of a server that ends, and starts again with its data.
func (u *env) kill(part, name string, code int, says string) fault {
	return fault{part, name, func() { servers.Kill(u.t, name) }, func() { servers.Restart(u.t, name) }, code, says}
}

// dependency is one entry of /health/dependencies.
type dependency struct {
	Kind, Name, Status, Message string
	Since, LastSeen             time.Time
}

// partIs waits until a part has a status.
func (u *env) partIs(kind, name, status string) (found dependency) {
	u.t.Helper()
	feed.Until(u.t, fmt.Sprintf("%s %s is %s", kind, name, status), func() (bool, string) {
		body, _ := u.Ask("health/dependencies") // it is 503 during an outage
		var list struct{ Dependencies []dependency }
		if err := json.Unmarshal(body, &list); err != nil {
			return false, err.Error()
		}
		at := slices.IndexFunc(list.Dependencies, func(d dependency) bool { return d.Kind == kind && d.Name == name })
		if at < 0 {
			return false, string(body)
		}
		found = list.Dependencies[at]
		return found.Status == status, string(body)
	})
	return found
}

// summary returns the summary that a page gets which opens now.
func (u *env) summary() string {
	u.t.Helper()
	response, err := http.Get(u.Gateway() + "api/v1/stream?topics=summary")
	if err != nil {
		u.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") && strings.Contains(lines.Text(), `"functions"`) {
			return lines.Text()
		}
	}
	u.t.Fatalf("the stream has no summary: %v", lines.Err())
	return ""
}
