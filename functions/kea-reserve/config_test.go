package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events/outbound"
)

func TestReadSettings(t *testing.T) {
	t.Parallel()
	standard := func(change func(*settings)) settings {
		s := settings{
			timeout: 10 * time.Second, disableKeepAlives: true, namespace: "here", secretNamespace: "here",
			classes: []string{"biosclients", "ueficlients", "ipxeclients"},
		}
		change(&s)
		return s
	}
	cases := map[string]struct {
		reason      string
		environment map[string]string
		want        settings
		wrong       string
	}{
		"Nothing": {reason: "an installation without Kea is valid", want: standard(func(*settings) {})},
		"URL": {
			reason: "a complete URL is used as it is", environment: map[string]string{"KEA_URL": "https://kea.example.com:8443/x", "KEA_BASE_URL": "ignored"},
			want: standard(func(s *settings) { s.urls = []string{"https://kea.example.com:8443/x"} }),
		},
		"Host": {
			reason: "a host gets the standard port and scheme", environment: map[string]string{"KEA_HOST": "kea"},
			want: standard(func(s *settings) { s.urls = []string{"http://kea:8000"} }),
		},
		"BaseURL": {
			reason: "the port may be a variable of its own", environment: map[string]string{"KEA_BASE_URL": "http://kea", "KEA_PORT": "9000"},
			want: standard(func(s *settings) { s.urls = []string{"http://kea:9000"} }),
		},
		"Secondary": {
			reason: "a second server is optional", environment: map[string]string{"KEA_URL": "http://a", "KEA_SECONDARY_URL": "http://b:1"},
			want: standard(func(s *settings) { s.urls = []string{"http://a:8000", "http://b:1"} }),
		},
		"TLS": {
			reason: "certificates select HTTPS",
			environment: map[string]string{"KEA_URL": "kea", "KEA_TLS_ENABLED": "true", "KEA_TLS_CA_FILE": "ca", "KEA_TLS_CERT_FILE": "cert",
				"KEA_TLS_KEY_FILE": "key", "KEA_TLS_SERVER_NAME": "name", "KEA_TLS_INSECURE": "1"},
			want: standard(func(s *settings) {
				s.urls, s.tls, s.insecure, s.serverName = []string{"https://kea:8000"}, true, true, "name"
				s.caFile, s.certFile, s.keyFile = "ca", "cert", "key"
			}),
		},
		"TLSOff": {
			reason: "certificates require TLS", environment: map[string]string{"KEA_URL": "kea", "KEA_TLS_CA_FILE": "ca"},
			want: standard(func(s *settings) { s.urls = []string{"http://kea:8000"} }),
		},
		"Secret": {
			reason: "certificates may be in other files", environment: map[string]string{"KEA_URL": "kea", "KEA_TLS_SECRET_NAME": "tls", "KEA_TLS_SECRET_NAMESPACE": "there"},
			want: standard(func(s *settings) {
				s.urls, s.secretName, s.secretNamespace = []string{"https://kea:8000"}, "tls", "there"
			}),
		},
		"Rest": {
			reason: "every variable is read",
			environment: map[string]string{"KEA_URL": "http://kea", "KEA_TIMEOUT_SECONDS": "3", "KEA_DISABLE_KEEPALIVES": "false", "KEA_STRICT_DEFAULTS": "on",
				"KEA_REQUIRE_CLIENT_CLASSES": " a, ,b", "KEA_BASIC_AUTH_USERNAME": "u", "KEA_BASIC_AUTH_PASSWORD": "p"},
			want: standard(func(s *settings) {
				s.urls, s.timeout, s.disableKeepAlives, s.strict = []string{"http://kea:8000"}, 3*time.Second, false, true
				s.classes, s.username, s.password = []string{"a", "b"}, "u", "p"
			}),
		},
		"LongTimeout": {
			reason: "a delivery must have time for the second server", environment: map[string]string{"KEA_URL": "http://kea", "KEA_TIMEOUT_SECONDS": "30"},
			want: standard(func(s *settings) { s.urls, s.timeout = []string{"http://kea:8000"}, 12*time.Second }),
		},
		"NoTimeout":     {reason: "zero is no timeout", environment: map[string]string{"KEA_TIMEOUT_SECONDS": "0"}, wrong: "read KEA_TIMEOUT_SECONDS: write a number of seconds from 1"},
		"NoFlag":        {reason: "the value is no boolean", environment: map[string]string{"KEA_TLS_ENABLED": "perhaps"}, wrong: "read KEA_TLS_ENABLED: write true or false"},
		"SecondaryOnly": {reason: "the URL of the first server is missing", environment: map[string]string{"KEA_SECONDARY_URL": "http://b"}, wrong: "read KEA_URL: it is empty"},
		"NoURL":         {reason: "the URL has no host", environment: map[string]string{"KEA_URL": "http://"}, wrong: "write addresses such as https://kea.example.com:8000"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readSettings(func(key string) string {
				if key == "POD_NAMESPACE" {
					return "here"
				}
				return tc.environment[key]
			})
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wrong)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(settings{}, subnetList{}, outbound.Rules{})); err != nil || diff != "" {
				t.Errorf("%s: error %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestConnectFails(t *testing.T) {
	t.Parallel()
	s := settings{urls: []string{"https://kea:8000"}, caFile: "/nowhere/ca.pem"}
	if _, err := s.connect(nil, nil, nil); err == nil || !strings.Contains(err.Error(), "correct KEA_TLS_CA_FILE") {
		t.Errorf("a missing file: got %v", err)
	}
}
