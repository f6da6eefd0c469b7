package app

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/tests/fakeapi"
)

// limitedKey makes a key for some namespaces, and the line that configures it.
func limitedKey(t *testing.T, name, granted string, namespaces ...string) (key, line string) {
	t.Helper()
	key, line = keyLine(t, name, granted)
	return key, line + " namespaces=" + strings.Join(namespaces, "+")
}

// secrets of team-a are texts that only its objects have.
var secretsOfTeamA = []string{"team-a", "team-a-net", "billing", "shop-cp", "shop-workers", "printer", "db-0", "10.20.1.0/24", "10.20.1.77", "10.20.1.20"}

// tellsOf returns what an answer tells of team-a that the request did not say.
func tellsOf(r reply, request string) (found []string) {
	text := string(r.body)
	for name, values := range r.Header {
		text += "\n" + name + ": " + strings.Join(values, " ")
	}
	for _, secret := range secretsOfTeamA {
		if strings.Contains(text, secret) && !strings.Contains(request, secret) {
			found = append(found, secret)
		}
	}
	return found
}

// fileOfTheProgram is the same for all callers.
const fileOfTheProgram = "a file of the program, with examples"

// silent are the routes that show no caller anything of a namespace, with the reason.
var silent = map[string]string{
	"GET /": fileOfTheProgram, "GET /page/{file}": fileOfTheProgram,
	"GET /api/v1/openapi.json": fileOfTheProgram, "GET /api/v1/openapi.yaml": fileOfTheProgram, "GET /api/v1/docs": fileOfTheProgram, "GET /api/v1/docs.css": fileOfTheProgram,
	"GET /health": "words for each dependency", "GET /health/live": "one word", "GET /health/operators": "of hypervisors", "GET /health/backends": "of backends", "GET /health/dependencies": "names of objects of the stack", "GET /health/database": "one word", "GET /health/cache": "one word", "GET /ready": "kinds",
	"GET /api/v1/health": "words for each dependency", "GET /api/v1/health/live": "one word", "GET /api/v1/health/operators": "of hypervisors", "GET /api/v1/health/backends": "of backends", "GET /api/v1/health/dependencies": "names of objects of the stack", "GET /api/v1/health/database": "one word", "GET /api/v1/health/cache": "one word", "GET /api/v1/ready": "kinds",
	"GET /metrics": "sums", "GET /api/v1/metrics": "sums", "GET /api/v1/infrastructure": "sums",
	"GET /api/v1/session": "the caller's own", "POST /api/v1/session": "the caller's own", "DELETE /api/v1/session": "the caller's own",
	"GET /api/v1/backups": "the test has none", "GET /api/v1/backups/{id}": "the test has none", "GET /api/v1/backups/{namespace}/{name}": "the test has none",
	"GET /api/v1/clusters/{namespace}/{name}": "nothing that the request does not say", "GET /api/v1/clusters/{namespace}/{name}/conditions": "nothing that the request does not say", "GET /api/v1/vms/{namespace}/{name}": "nothing that the request does not say",
	"GET /version": "of the program", "GET /api/v1/version": "of the program",
	"DELETE /api/v1/dead-letters/{sequence}": "it shows none", "POST /api/v1/dead-letters/{sequence}/resend": "it shows none",
	"GET /api/v1/operators": "of hypervisors", "GET /api/v1/operators/{id}": "of hypervisors",
	"GET /api/v1/hosts": "in no namespace", "GET /api/v1/hosts/{id}": "in no namespace",
	"GET /api/v1/machine-classes":  "in no namespace",
	"GET /api/v1/clustertemplates": "the test has none", "GET /api/v1/clustertemplates/{id}": "the test has none",
	"GET /api/v1/providers": "in no namespace", "GET /api/v1/providers/{id}": "in no namespace",
	"POST /api/v1/events": "it takes events, and shows none", "POST /events": "it takes events, and shows none", "POST /dead-letters": "it takes events, and shows none", "POST /heartbeats": "it takes events, and shows none",
	"POST /api/v1/import/prometheus": "it takes metrics, and shows none",
}

// ofTheWhole are the routes that refuse a caller with a limit.
var ofTheWhole = []string{
	"GET /api/v1/stream", "GET /events/stream", "GET /api/v1/dead-letters", "GET /api/v1/dead-letters/{sequence}", "DELETE /api/v1/dead-letters/{sequence}", "POST /api/v1/dead-letters/{sequence}/resend", "GET /api/v1/infrastructure", "GET /metrics", "GET /api/v1/metrics",
	"GET /api/v1/clustertemplates", "GET /api/v1/clustertemplates/{id}",
	"GET /api/v1/providers", "GET /api/v1/providers/{id}", "GET /api/v1/hosts", "GET /api/v1/hosts/{id}", "GET /api/v1/operators", "GET /api/v1/operators/{id}",
}

// TestNoRouteShowsOtherNamespaces asks every route of the description, in every way that it can
// be asked, with a key of team-b, and finds nothing of team-a. A key without namespaces
// finds something by the same requests.
func TestNoRouteShowsOtherNamespaces(t *testing.T) {
	t.Parallel()
	whole, wholeLine := keyLine(t, "whole", "read+write")
	limited, limitedLine := limitedKey(t, "limited", "read+write", "team-b", "team-q")
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) }, "--auth.enabled=true", "--auth.metrics=true", "--auth.keys="+wholeLine+","+limitedLine)
	s.waitReady()
	as := func(key string) []string {
		return []string{"Authorization", "Bearer " + key, "Content-Type", "application/json"}
	}
	letter := `{"specversion":"1.0","id":"x","source":"/a","type":"a.b","subject":"/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/billing","knativeerrorcode":"422","knativeerrordest":"http://x","data":{}}`
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == http.StatusOK })
	if r := s.do(http.MethodPost, "/dead-letters", letter, "Content-Type", structured); r.StatusCode != http.StatusAccepted {
		t.Fatalf("the dead letter: %s %s", r.Status, r.body)
	}
	for namespace, cluster := range map[string]string{"team-a": "billing", "team-b": "search", "": "hypervisors"} {
		happened := history.Event{
			ID: cluster, Source: "/test", Type: "infrastructure.cluster.updated", Time: time.Now(), Cluster: cluster, Data: json.RawMessage(`{"of":"` + namespace + `"}`),
			Object: history.Object{Kind: "KubernetesCluster", Namespace: namespace, Name: cluster},
		}
		if _, err := s.app.history.Write(t.Context(), history.Record{Events: []history.Event{happened}}); err != nil {
			t.Fatal(err)
		}
	}
	doc := description(t)
	asked := 0
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			route := method + " " + path
			found := false
			if strings.HasSuffix(path, "/stream") {
				method = http.MethodHead // it does not end
			}
			for _, request := range s.requestsFor(method, path, as(whole)) {
				asked++
				says, _ := url.QueryUnescape(request.path)
				says += request.body
				if silent[route] == fileOfTheProgram {
					continue
				}
				if r := s.do(method, request.path, request.body, as(limited)...); len(tellsOf(r, says)) > 0 {
					t.Errorf("%s %s tells of %v with a key of another namespace: %s", method, request.path, tellsOf(r, says), r.Status)
				} else if slices.Contains(ofTheWhole, route) && r.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s shows the whole installation, and is answered with %s", method, request.path, r.Status)
				}
				if method != http.MethodHead {
					found = found || len(tellsOf(s.do(method, request.path, request.body, as(whole)...), says)) > 0
				}
			}
			if !found && silent[route] == "" && method != http.MethodHead {
				t.Errorf("no request of this test finds anything of team-a by %s: add one that does, or say why there is nothing", route)
			}
		}
	}
	if asked < 100 {
		t.Errorf("only %d requests were made", asked)
	}
	// What is the caller's own is there.
	for _, path := range []string{"/api/v1/clusters", "/api/v1/machines", "/api/v1/resources", "/api/v1/events", "/api/v1/clusters/team-b%2Fsearch", "/api/v1/clusters/team-b%2Fsearch/timeline"} {
		if r := s.get(path, as(limited)...); r.StatusCode != http.StatusOK || !strings.Contains(string(r.body), "search") {
			t.Errorf("%s does not show what is in the key's namespace: %s %.200s", path, r.Status, r.body)
		}
	}
}

func description(t *testing.T) *openapi3.T {
	t.Helper()
	encoded, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// wanted is a request that asks for something of team-a.
type wanted struct{ path, body string }

// requestsFor are the requests that ask a route for something of team-a.
func (s *env) requestsFor(method, path string, headers []string) []wanted {
	s.t.Helper()
	if method == http.MethodPost || method == http.MethodDelete {
		path = strings.ReplaceAll(path, "{sequence}", "999")
		return []wanted{
			{path, `{"apiVersion":"vitistack.io/v1alpha1","kind":"KubernetesCluster","metadata":{"name":"x","namespace":"team-a"},"spec":{"topology":{"version":"1.33","controlplane":{"replicas":3},"workers":[{"name":"w","replicas":400}]}}}`},
			{path + "?namespace=team-a", `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","metadata":{"name":"x"},"spec":{}}`},
			{path, `{"key":"x"}`},
		}
	}
	path, byName := strings.ReplaceAll(path, "{namespace}/{name}", "{id}"), strings.Contains(path, "{namespace}/{name}")
	before, after, named := strings.Cut(path, "{")
	if !named {
		var all []wanted
		for _, query := range []string{"", "?namespace=team-a", "?namespace=team-a,team-b", "?q=team", "?limit=1000", "?sort=-name", "?fields=id,name", "?cluster=shop", "?name=shop", "?uid=uid-shop", "?topics=machines"} {
			all = append(all, wanted{path: path + query})
		}
		return all
	}
	_, after, _ = strings.Cut(after, "}")
	if !strings.HasPrefix(path, base) {
		return []wanted{{path: before + "main.js" + after}}
	}
	var all []wanted
	var list map[string]json.RawMessage
	// The objects are in the lists of their kinds.
	from := strings.Replace(strings.TrimSuffix(before, "/"), base+"/objects", base+"/machines", 1)
	r := s.get(from+"?limit=1000", headers...)
	if err := json.Unmarshal(r.body, &list); err != nil {
		s.t.Fatalf("read the list of %s: %s %v", path, r.Status, err)
	}
	for _, encoded := range list {
		var items []struct {
			ID, Namespace, Name string
			Sequence            int64
		}
		if err := json.Unmarshal(encoded, &items); err != nil {
			s.t.Fatal(err)
		}
		for _, i := range items {
			if i.Sequence > 0 {
				i.ID = strconv.FormatInt(i.Sequence, 10)
			}
			if byName {
				if i.Namespace != "team-a" {
					continue
				}
				all = append(all, wanted{path: before + i.Namespace + "/" + i.Name + after})
				continue
			}
			if i.Namespace == "team-a" || i.Namespace == "" {
				all = append(all, wanted{path: before + cmp.Or(i.ID, i.Name, "talos") + after})
			}
			if i.Namespace == "team-a" {
				all = append(all, wanted{path: before + i.Namespace + "%2F" + i.Name + after})
			}
		}
	}
	return all
}

// TestTokensReadByNamespace has the owner of a token read what its rights in the Kubernetes API
// say.
func TestTokensReadByNamespace(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	rights := map[string][]string{
		"ola":  {"list kubernetesclusters team-b", "get kubernetesclusters team-b", "list networknamespaces team-b"},
		"siri": {"list machines ", "get machines "},
	}
	s := startCold(t, func(api *fakeapi.Server) {
		busy(t, api)
		api.Answer("tokenreviews", func(body []byte) any {
			var in struct{ Spec struct{ Token string } }
			_ = json.Unmarshal(body, &in)
			status := map[string]any{"authenticated": rights[in.Spec.Token] != nil, "user": map[string]any{"username": in.Spec.Token}}
			return map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}
		})
		api.Answer("subjectaccessreviews", func(body []byte) any {
			var in struct {
				Spec struct {
					User               string
					ResourceAttributes *struct{ Verb, Resource, Namespace string }
				}
			}
			_ = json.Unmarshal(body, &in)
			allowed := false
			if a := in.Spec.ResourceAttributes; a != nil {
				allowed = slices.Contains(rights[in.Spec.User], a.Verb+" "+a.Resource+" "+a.Namespace)
			}
			return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": allowed && !down.Load()}}
		})
	}, "--auth.enabled=true", "--auth.tokenReview=true")
	s.waitReady()
	tests := map[string]struct {
		reason, token, path string
		want                int
		has, lacks          string
	}{
		"OwnList":      {"a list of a namespace that the user may list", "ola", "/api/v1/clusters?namespace=team-b", 200, "search", "billing"},
		"OtherList":    {"of another it is empty", "ola", "/api/v1/clusters?namespace=team-a", 200, `{"clusters":[]}`, "billing"},
		"Both":         {"of both it has what may be listed", "ola", "/api/v1/clusters?namespace=team-a,team-b", 200, "search", "billing"},
		"Everywhere":   {"as kubectl --all-namespaces does, it needs the right in all", "ola", "/api/v1/clusters", 403, "namespace=team-a", "billing"},
		"OtherKind":    {"machines are another right", "ola", "/api/v1/machines?namespace=team-b", 200, `{"machines":[]}`, "search-cp"},
		"One":          {"one object by its name", "ola", "/api/v1/clusters/team-b%2Fsearch", 200, "search", ""},
		"OtherOne":     {"another's does not exist", "ola", "/api/v1/clusters/team-a%2Fshop", 404, "", "uid-shop"},
		"OtherByUID":   {"nor by its UID", "ola", "/api/v1/clusters/uid-shop", 404, "", "team-a"},
		"Manifests":    {"they are read from ConfigMaps", "ola", "/api/v1/clusters/team-b%2Fsearch/manifests", 403, "configmaps", ""},
		"Timeline":     {"it shows machines too", "ola", "/api/v1/clusters/team-b%2Fsearch/timeline", 403, "machines", "search-cp"},
		"Resources":    {"they are clusters, machines and networks", "ola", "/api/v1/resources?namespace=team-b", 200, `{"resources":[]}`, "search"},
		"Stream":       {"it shows the whole installation", "ola", "/api/v1/stream", 403, "/api/v1/clusters", ""},
		"TooMany":      {"each namespace costs the API server requests", "ola", "/api/v1/clusters?namespace=a,b,c,d,e,f,g,h,i,j,k", 400, "at most 10", ""},
		"AllOfAKind":   {"the right in all namespaces needs none to be named", "siri", "/api/v1/machines?limit=1000", 200, "shop-cp-0", ""},
		"NotOfAnother": {"and is for its kind alone", "siri", "/api/v1/clusters?namespace=team-a", 200, `{"clusters":[]}`, "shop"},
	}
	for name, tc := range tests {
		r := s.get(tc.path, "Authorization", "Bearer "+tc.token)
		if r.StatusCode != tc.want || !strings.Contains(string(r.body), tc.has) || tc.lacks != "" && strings.Contains(string(r.body), tc.lacks) {
			t.Errorf("%s: %s: %s %.300s", name, tc.reason, r.Status, r.body)
		}
	}
	before := s.api.Requests("subjectaccessreviews")
	for range 5 {
		s.get("/api/v1/clusters?namespace=team-b", "Authorization", "Bearer ola")
	}
	if s.api.Requests("subjectaccessreviews") != before {
		t.Error("the API server is asked for each request")
	}
	s.api.FailResource("subjectaccessreviews", 503)
	if r := s.get("/api/v1/clusters?namespace=team-x", "Authorization", "Bearer ola"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while the API server does not say: %s", r.Status)
	}
}

// TestEventsOfAKeyWithNamespaces has an external system decide for its own namespace, and for no
// other.
func TestEventsOfAKeyWithNamespaces(t *testing.T) {
	t.Parallel()
	key, line := limitedKey(t, "ticketing", "events", "team-b")
	s := start(t, "--auth.enabled=true", "--auth.keys="+line)
	for name, tc := range map[string]struct {
		reason, subject string
		want            int
	}{
		"Own":   {"the Broker is not there, which is another matter", "/apis/vitistack.io/v1alpha1/namespaces/team-b/kubernetesclusters/search", http.StatusServiceUnavailable},
		"Other": {"another team's cluster is not approved by it", "/apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop", http.StatusForbidden},
		"None":  {"what is in no namespace is of the whole installation", "/apis/vitistack.io/v1alpha1/machineproviders/pve", http.StatusForbidden},
	} {
		event := `{"specversion":"1.0","id":"` + name + `","source":"/tickets","type":"io.vitistack.workorder.approved","subject":"` + tc.subject + `","data":{"uid":"u","generation":1,"by":"kari"}}`
		if r := s.do(http.MethodPost, "/api/v1/events", event, "Authorization", "Bearer "+key, "Content-Type", structured); r.StatusCode != tc.want {
			t.Errorf("%s: %s: %s %s", name, tc.reason, r.Status, r.body)
		}
	}
}

// TestMetricsNeedAKey has metrics, which name networks of all namespaces, open until a key is
// limited.
func TestMetricsNeedAKey(t *testing.T) {
	t.Parallel()
	whole, wholeLine := keyLine(t, "whole", "read")
	limited, limitedLine := limitedKey(t, "limited", "read", "team-b")
	for name, tc := range map[string]struct {
		reason, keys, key string
		want              int
	}{
		"NoLimits": {"no caller has a limit", wholeLine, "", http.StatusOK},
		"NoKey":    {"a caller with a limit could leave the key out", wholeLine + "," + limitedLine, "", http.StatusUnauthorized},
		"Limited":  {"they name networks of others", wholeLine + "," + limitedLine, limited, http.StatusForbidden},
		"Whole":    {"Prometheus has such a key", wholeLine + "," + limitedLine, whole, http.StatusOK},
	} {
		s := start(t, "--auth.enabled=true", "--auth.keys="+tc.keys)
		var headers []string
		if tc.key != "" {
			headers = []string{"Authorization", "Bearer " + tc.key}
		}
		if r := s.get("/metrics", headers...); r.StatusCode != tc.want {
			t.Errorf("%s: %s, want %d: %s", name, r.Status, tc.want, tc.reason)
		}
	}
}

// TestLimitedKeyBeginsNoSession keeps a key with namespaces from the page, at the login and when a
// key gets namespaces later.
func TestLimitedKeyBeginsNoSession(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "team", "read")
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(line)
	s := start(t, "--auth.enabled=true", "--auth.keysFile="+path)
	login := func() reply {
		return s.do(http.MethodPost, "/api/v1/session", `{"key":"`+key+`"}`, "Content-Type", "application/json")
	}
	r := login()
	cookie, _, _ := strings.Cut(r.Header.Get("Set-Cookie"), ";")
	if r.StatusCode != http.StatusNoContent || s.get("/api/v1/clusters", "Cookie", cookie).StatusCode != http.StatusOK {
		t.Fatalf("log in without a limit: %s", r.Status)
	}
	write(line + " namespaces=team-b")
	eventually(t, "the end of the session", func() bool {
		return s.get("/api/v1/infrastructure", "Cookie", cookie).StatusCode == http.StatusUnauthorized
	})
	if r := login(); r.StatusCode != http.StatusForbidden || !strings.Contains(string(r.body), "is limited to the namespaces team-b") {
		t.Errorf("log in with a limit: %s %s", r.Status, r.body)
	}
	if session := s.get("/api/v1/session", "Cookie", cookie).object(t); len(session) != 1 || session["required"] != true {
		t.Errorf("the session of the old cookie is %v", session)
	}
}
