package kea_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// pairs are the real servers, each with the simulator that must answer in the same way.
var pairs = map[kea.Generation]func(*testing.T, stand.Options) string{
	kea.Kea2: func(t *testing.T, o stand.Options) string { return stand.Start(t, stand.Kea2, o).URL() },
	kea.Kea3: func(t *testing.T, o stand.Options) string { return stand.Start(t, stand.Kea3, o).URL() },
	kea.Kea3Plain: func(t *testing.T, o stand.Options) string {
		o.Plain = true
		return stand.Start(t, stand.Kea3, o).URL()
	},
}

// start serves a simulator until t ends.
func start(t *testing.T, o kea.Options) (*kea.Server, string) {
	t.Helper()
	s, err := kea.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

type reply struct {
	Result    int    `json:"result"`
	Text      string `json:"text"`
	Arguments any    `json:"arguments"`
}

// fresh uses a new connection for each request, because Kea closes a connection after it rejects a
// request.
var fresh = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// post sends a body and returns the status, and the reply if there is one.
func post(t *testing.T, url, contentType, body string) (int, reply) {
	t.Helper()
	res, err := fresh.Post(url, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list []reply
	if json.Unmarshal(text, &list) == nil && len(list) == 1 {
		return res.StatusCode, list[0]
	}
	var one reply
	if err := json.Unmarshal(text, &one); err != nil {
		t.Fatalf("read the answer: %v: %s", err, text)
	}
	return res.StatusCode, one
}

// ask sends a command, with arguments in JSON or without any.
func ask(t *testing.T, url, command, arguments string) reply {
	t.Helper()
	body := fmt.Sprintf(`{"command":%q,"service":["dhcp4"]`, command)
	if arguments != "" {
		body += `,"arguments":` + arguments
	}
	status, r := post(t, url, "application/json", body+"}")
	if status != http.StatusOK {
		t.Fatalf("%s: got HTTP status %d", command, status)
	}
	return r
}

// position matches the position in the input that Kea's parser reports.
var position = regexp.MustCompile(`\s*\([^()]*:\d+:\d+\)`)

const added = `{"reservation":{"subnet-id":1,"hw-address":"02:00:00:00:00:02","ip-address":"10.77.0.20","option-data":[{"name":"routers","data":"10.77.0.1"},{"name":"domain-name-servers","data":"1.1.1.1, 8.8.8.8"}],"user-context":{"vitistack.io/uid":"a"}},"operation-target":"all"}`

func reservation(fields string) string {
	return `{"reservation":{"subnet-id":1,` + fields + `},"operation-target":"all"}`
}

func subnets(list string) string { return `{"Dhcp4":{"subnet4":[` + list + `]}}` }

// script is sent to both servers of a pair. Every answer must have the same result, and no argument
// that the real server lacks. Texts are compared for Kea 2.2 only, because newer versions may change
// them.
var script = []struct{ command, arguments string }{
	{"nonsense", ""},
	{"subnet4-list", ""},
	{"subnet4-get", `{"id":1}`},
	{"subnet4-get", `{"subnet":"10.77.0.0/24"}`},
	{"subnet4-get", `{}`},
	{"reservation-get-all", `{"subnet-id":1,"operation-target":"all"}`},
	{"reservation-get-all", `{"subnet-id":1,"operation-target":"database"}`},
	{"reservation-get-all", `{"subnet-id":1,"operation-target":"nope"}`},
	{"reservation-get-all", `{"subnet-id":7}`},
	{"reservation-add", added},
	{"reservation-add", added},
	{"reservation-add", strings.Replace(added, `"all"`, `"database"`, 1)},
	{"reservation-add", reservation(`"hw-address":"02:00:00:00:00:03","ip-address":"10.77.0.20"`)},
	{"reservation-add", reservation(`"hw-address":"02:00:00:00:00:03","ip-address":"10.78.0.20"`)},
	{"reservation-add", reservation(`"ip-address":"10.77.0.33"`)},
	{"reservation-add", reservation(`"hw-address":"zz","ip-address":"10.77.0.33"`)},
	{"reservation-add", reservation(`"hw-address":"02:00:00:00:00:03","ip-address":"10.77.0.33","nonsense":1`)},
	{"reservation-add", `{"reservation":{"subnet-id":99,"hw-address":"02:00:00:00:00:03","ip-address":"10.77.0.33"},"operation-target":"all"}`},
	{"reservation-add", `{}`},
	{"reservation-add", ""},
	{"reservation-get", `{"subnet-id":1,"identifier-type":"hw-address","identifier":"02:00:00:00:00:02","operation-target":"all"}`},
	{"reservation-get", `{"subnet-id":1,"ip-address":"10.77.0.20"}`},
	{"reservation-get", `{"subnet-id":1,"ip-address":"10.77.0.99"}`},
	{"reservation-get-by-id", `{"identifier-type":"hw-address","identifier":"02:00:00:00:00:02"}`},
	{"reservation-get-by-id", `{"identifier-type":"hw-address","identifier":"02:00:00:00:00:99"}`},
	{"reservation-get-by-id", `{"identifier-type":"nope","identifier":"02:00:00:00:00:99"}`},
	{"reservation-get-by-id", `{"subnet-id":1,"identifier-type":"hw-address","identifier":"02:00:00:00:00:02"}`},
	{"reservation-update", reservation(`"hw-address":"02:00:00:00:00:02","ip-address":"10.77.0.21"`)},
	{"reservation-update", reservation(`"hw-address":"02:00:00:00:00:44","ip-address":"10.77.0.44"`)},
	{"reservation-update", reservation(`"hw-address":"02:00:00:00:00:02","ip-address":"10.77.0.9"`)},
	{"reservation-get-all", `{"subnet-id":1}`},
	{"reservation-del", `{"subnet-id":1,"identifier-type":"hw-address","identifier":"02:00:00:00:00:01"}`},
	{"reservation-del", `{"subnet-id":1,"identifier-type":"hw-address","identifier":"02:00:00:00:00:01","operation-target":"all"}`},
	{"reservation-del", `{"subnet-id":1,"identifier-type":"hw-address","identifier":"02:00:00:00:00:01","operation-target":"all"}`},
	{"reservation-del", `{"subnet-id":1}`},
	{"subnet4-add", `{"subnet4":[{"id":172818432,"subnet":"10.80.0.0/24","evaluate-additional-classes":["a"],"option-data":[{"name":"routers","data":"10.80.0.1"}],"user-context":{"x":"y"}}]}`},
	{"subnet4-add", `{"subnet4":[{"id":3,"subnet":"10.80.0.0/24"}]}`},
	{"subnet4-add", `{"subnet4":[{"id":1,"subnet":"10.81.0.0/24"}]}`},
	{"subnet4-add", `{"subnet4":[{"id":3,"subnet":"10.81.0.0/24","nonsense":1}]}`},
	{"subnet4-add", `{"subnet4":[{"subnet":"10.81.0.0/24"}]}`},
	{"subnet4-add", `{"subnet4":[{"id":3,"subnet":"10.81.0.0/24","reservations":[]}]}`},
	{"subnet4-add", `{"subnet4":[]}`},
	{"subnet4-get", `{"id":172818432}`},
	{"subnet4-list", ""},
	{"subnet4-del", `{"id":172818432}`},
	{"subnet4-del", `{"id":172818432}`},
	{"subnet4-del", `{}`},
	{"lease4-add", `{"ip-address":"10.77.0.50","hw-address":"02:00:00:00:00:05","subnet-id":1}`},
	{"lease4-add", `{"ip-address":"10.77.0.50","hw-address":"02:00:00:00:00:06","subnet-id":1}`},
	{"lease4-add", `{"ip-address":"10.78.0.50","hw-address":"02:00:00:00:00:06","subnet-id":1}`},
	{"lease4-get", `{"ip-address":"10.77.0.50"}`},
	{"lease4-get", `{"ip-address":"10.77.0.51"}`},
	{"lease4-get-all", `{"subnets":[1]}`},
	{"lease4-get-all", `{"subnets":[77]}`},
	{"lease4-del", `{"ip-address":"10.77.0.50"}`},
	{"lease4-del", `{"ip-address":"10.77.0.50"}`},
	{"config-test", ""},
	{"config-test", `{}`},
	{"config-test", `{"Foo":{}}`},
	{"config-test", `{"Dhcp4":{"nonsense":1}}`},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","nonsense":1}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","evaluate-additional-classes":["x"]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","require-client-classes":["x"]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","user-context":5}`)},
	{"config-test", subnets(`{"subnet":"10.0.0.0/24"}`)},
	{"config-test", subnets(`{"id":0,"subnet":"10.0.0.0/24"}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24"},{"id":1,"subnet":"10.0.1.0/24"}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24"},{"id":2,"subnet":"10.0.0.0/24"}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"ip-address":"10.0.0.1"}]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:05","ip-address":"10.1.0.1"}]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:05","ip-address":"10.0.0.1","subnet-id":1}]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:05","ip-address":"10.0.0.1"},{"hw-address":"02:00:00:00:00:06","ip-address":"10.0.0.1"}]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:05","ip-address":"10.0.0.1"},{"hw-address":"02:00:00:00:00:05","ip-address":"10.0.0.2"}]}`)},
	{"config-test", subnets(`{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:05","ip-address":"10.0.0.1","option-data":[{"name":"nope","data":"1"}]}]}`)},
	{"config-set", `{"Foo":{}}`},
}

func TestLikeKea(t *testing.T) {
	t.Parallel()
	for generation, real := range pairs {
		t.Run(string(generation), func(t *testing.T) {
			t.Parallel()
			hosts := []stand.Reservation{{HWAddress: "02:00:00:00:00:01", IPAddress: "10.77.0.9"}}
			o := stand.Options{
				Subnets:        []stand.Subnet{{ID: 1, Subnet: "10.77.0.0/24", Reservations: hosts}},
				SharedNetworks: map[string][]stand.Subnet{"floor": {{ID: 5, Subnet: "10.99.0.0/24"}}},
			}
			config, err := json.Marshal(map[string]any{
				"valid-lifetime": 600, "subnet4": o.Subnets,
				"shared-networks": []any{map[string]any{"name": "floor", "subnet4": o.SharedNetworks["floor"]}},
			})
			if err != nil {
				t.Fatal(err)
			}
			theirs := real(t, o)
			_, ours := start(t, kea.Options{Generation: generation, Dhcp4: config})
			for i, step := range script {
				want, got := ask(t, theirs, step.command, step.arguments), ask(t, ours, step.command, step.arguments)
				about := fmt.Sprintf("step %d: %s %s", i, step.command, step.arguments)
				if got.Result != want.Result {
					t.Errorf("%s: got result %d (%s), Kea's is %d (%s)", about, got.Result, got.Text, want.Result, want.Text)
				}
				if text := position.ReplaceAllString(want.Text, ""); got.Text != text && generation == kea.Kea2 {
					t.Errorf("%s: got text %q, Kea's is %q", about, got.Text, text)
				}
				if where := within(got.Arguments, want.Arguments, ""); where != "" {
					t.Errorf("%s: got arguments that Kea does not return, at %s", about, where)
				}
			}
			roundTrip(t, generation, theirs, ours)
		})
	}
}

// within returns the path of a value in got that want lacks, or an empty string. Times may differ.
func within(got, want any, path string) string {
	switch g := got.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok {
			return path
		}
		for key, value := range g {
			if key == "cltt" || key == "valid-lft" {
				continue
			}
			other, ok := w[key]
			if !ok {
				return path + "." + key
			}
			if where := within(value, other, path+"."+key); where != "" {
				return where
			}
		}
		return ""
	case []any:
		w, ok := want.([]any)
		if !ok || len(g) != len(w) {
			return path
		}
		for i := range g {
			if where := within(g[i], w[i], fmt.Sprintf("%s[%d]", path, i)); where != "" {
				return where
			}
		}
		return ""
	default:
		if !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("%s: %v and not %v", path, got, want)
		}
		return ""
	}
}

// roundTrip sets each server's own configuration with one more reservation.
func roundTrip(t *testing.T, generation kea.Generation, urls ...string) {
	t.Helper()
	for _, url := range urls {
		arguments, _ := ask(t, url, "config-get", "").Arguments.(map[string]any)
		_, hashed := arguments["hash"]
		if hashed != (generation != kea.Kea2) {
			t.Errorf("config-get of %s at %s has a hash: %t", generation, url, hashed)
		}
		delete(arguments, "hash")
		dhcp4, _ := arguments["Dhcp4"].(map[string]any)
		list, _ := dhcp4["subnet4"].([]any)
		first, _ := list[0].(map[string]any)
		hosts, _ := first["reservations"].([]any)
		first["reservations"] = append(hosts, map[string]any{"hw-address": "02:00:00:00:00:31", "ip-address": "10.77.0.31"})
		var b bytes.Buffer
		if err := json.NewEncoder(&b).Encode(arguments); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"config-test", "config-set", "config-write"} {
			body := b.String()
			if command == "config-write" {
				body = ""
			}
			if r := ask(t, url, command, body); r.Result != 0 {
				t.Errorf("%s of %s at %s: got result %d: %s", command, generation, url, r.Result, r.Text)
			}
		}
		if text := fmt.Sprint(ask(t, url, "config-get", "").Arguments); !strings.Contains(text, "10.77.0.31") {
			t.Errorf("config-set of %s at %s was not persistent", generation, url)
		}
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	theirs := stand.Start(t, stand.Kea3, stand.Options{Username: "admin", Password: "s3cret"}).URL()
	_, ours := start(t, kea.Options{Username: "admin", Password: "s3cret"})
	open3 := stand.Start(t, stand.Kea3, stand.Options{}).URL()
	_, open := start(t, kea.Options{})
	cases := map[string]struct {
		reason       string
		theirs, ours string
		contentType  string
		body         string
		status       int
		result       int
	}{
		"NoCredentials": {reason: "a change requires authentication", theirs: theirs, ours: ours, contentType: "application/json", body: `{"command":"list-commands"}`, status: 401, result: 401},
		"NotJSON":       {reason: "the request is not parsed", theirs: open3, ours: open, contentType: "application/json", body: "{", status: 400, result: 400},
		"OtherType":     {reason: "the request is not parsed", theirs: open3, ours: open, contentType: "text/plain", body: `{"command":"list-commands"}`, status: 400, result: 400},
		"List":          {reason: "a command is an object", theirs: open3, ours: open, contentType: "application/json", body: "[1]", status: 200, result: 1},
		"NoCommand":     {reason: "there is no command", theirs: open3, ours: open, contentType: "application/json", body: `{"a":1}`, status: 200, result: 1},
		"NoService":     {reason: "the server itself requires no service", theirs: open3, ours: open, contentType: "application/json", body: `{"command":"list-commands"}`, status: 200, result: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, url := range []string{tc.theirs, tc.ours} {
				if status, r := post(t, url, tc.contentType, tc.body); status != tc.status || r.Result != tc.result {
					t.Errorf("%s: %s answered status %d, result %d, want %d and %d", tc.reason, url, status, r.Result, tc.status, tc.result)
				}
			}
		})
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	s, url := start(t, kea.Options{Dhcp4: json.RawMessage(`{"subnet4":[{"id":1,"subnet":"10.77.0.0/24","option-data":[{"name":"routers","data":"10.77.0.1"}]}]}`)})
	if _, err := s.Serve("02:00:00:00:00:02", "10.77.0.1"); err == nil {
		t.Error("a client without a reservation is served")
	}
	ask(t, url, "reservation-add", `{"reservation":{"subnet-id":1,"hw-address":"02:00:00:00:00:02","ip-address":"10.77.0.20"},"operation-target":"memory"}`)
	if got, err := s.Serve("02:00:00:00:00:02", "10.77.0.1"); err != nil || got.Address != "10.77.0.20" || got.Routers != "10.77.0.1" {
		t.Errorf("a client with a reservation got %v, error %v", got, err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Serve("02:00:00:00:00:02", "10.77.0.1"); err == nil {
		t.Error("a reservation that was not written survives a restart")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	_, url := start(t, kea.Options{Faults: plan, Dhcp4: json.RawMessage(`{"subnet4":[{"id":1,"subnet":"10.77.0.0/24"}]}`)})
	if err := plan.Set(faults.Rule{Operation: "reservation-add", Error: "no luck", After: true, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if r := ask(t, url, "reservation-add", added); r.Result != 1 || r.Text != "no luck" {
		t.Errorf("got %v, want result 1", r)
	}
	if r := ask(t, url, "reservation-get-all", `{"subnet-id":1}`); r.Result != 0 {
		t.Errorf("a command with a lost answer was not carried out: %v", r)
	}
}
