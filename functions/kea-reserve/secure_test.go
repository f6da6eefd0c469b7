package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestSecure connects to real servers that authenticate clients.
func TestSecure(t *testing.T) {
	t.Parallel()
	trust, other := stand.NewTLS(t), stand.NewTLS(t)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, cert, key := file("ca.pem", trust.CA), file("cert.pem", trust.Cert), file("key.pem", trust.Key)
	otherCert, otherKey := file("other-cert.pem", other.Cert), file("other-key.pem", other.Key)
	cases := map[string]struct {
		reason      string
		options     stand.Options
		environment []string
		secret      map[string][]byte
		want        string
	}{
		"Password": {
			reason: "the credentials are right", options: stand.Options{Username: "admin", Password: "s3cret"},
			environment: []string{"KEA_BASIC_AUTH_USERNAME=admin", "KEA_BASIC_AUTH_PASSWORD=s3cret"}, want: "True NetworkConfigured",
		},
		"WrongPassword": {
			reason: "the credentials are wrong", options: stand.Options{Username: "admin", Password: "s3cret"},
			environment: []string{"KEA_BASIC_AUTH_USERNAME=admin", "KEA_BASIC_AUTH_PASSWORD=guess"}, want: "False KeaUnauthorized",
		},
		"NoPassword": {
			reason: "there are no credentials", options: stand.Options{Username: "admin", Password: "s3cret"}, want: "False KeaUnauthorized",
		},
		"Files": {
			reason: "each side trusts the other", options: stand.Options{TLS: trust},
			environment: []string{"KEA_TLS_ENABLED=true", "KEA_TLS_CA_FILE=" + ca, "KEA_TLS_CERT_FILE=" + cert, "KEA_TLS_KEY_FILE=" + key},
			want:        "True NetworkConfigured",
		},
		"Secret": {
			reason: "certificates may be in a Secret", options: stand.Options{TLS: trust},
			environment: []string{"KEA_TLS_SECRET_NAME=kea"},
			secret:      map[string][]byte{"ca.crt": trust.CA, "tls.crt": trust.Cert, "tls.key": trust.Key}, want: "True NetworkConfigured",
		},
		"Stranger": {
			reason: "Kea does not trust the client", options: stand.Options{TLS: trust},
			environment: []string{"KEA_TLS_ENABLED=true", "KEA_TLS_CA_FILE=" + ca, "KEA_TLS_CERT_FILE=" + otherCert, "KEA_TLS_KEY_FILE=" + otherKey},
			want:        "False KeaUntrusted",
		},
		"Impostor": {
			reason: "the client does not trust Kea", options: stand.Options{TLS: trust},
			environment: []string{"KEA_TLS_ENABLED=true", "KEA_TLS_CERT_FILE=" + cert, "KEA_TLS_KEY_FILE=" + key},
			want:        "False KeaUntrusted",
		},
		"Insecure": {
			reason: "verification is disabled", options: stand.Options{TLS: trust},
			environment: []string{"KEA_TLS_ENABLED=true", "KEA_TLS_INSECURE=true", "KEA_TLS_CERT_FILE=" + cert, "KEA_TLS_KEY_FILE=" + key},
			want:        "True NetworkConfigured",
		},
	}
	for name, tc := range cases {
		for _, generation := range []stand.Generation{stand.Kea2, stand.Kea3} {
			t.Run(fmt.Sprintf("%s/Kea%d", name, generation), func(t *testing.T) {
				t.Parallel()
				b := stand.Start(t, generation, tc.options)
				w := newEnv(t, nil)
				if tc.secret != nil {
					w.must(w.kube.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "kea"}, Data: tc.secret}))
				}
				w.f = w.function([]string{b.URL()}, tc.environment...)
				w.network("net", "10.77.0.0/24", nil)
				w.configuration("vm", []string{macA}, nil)
				_ = w.deliver("NetworkConfiguration", "vm", "dev.knative.apiserver.ref.add")
				nc := w.get("vm")
				if got := ready(nc); !strings.HasPrefix(got, tc.want) {
					t.Errorf("%s: got Ready %s, want %s", tc.reason, got, tc.want)
				}
				for _, secret := range []string{"s3cret", "guess"} {
					if strings.Contains(fmt.Sprint(nc), secret) {
						t.Errorf("the object shows a password: %v", nc)
					}
				}
			})
		}
	}
}

// TestPasswordIsRenewed corrects a password in the mounted Secret while the function runs.
func TestPasswordIsRenewed(t *testing.T) {
	t.Parallel()
	b := stand.Start(t, stand.Kea3, stand.Options{Username: "admin", Password: "s3cret"})
	directory := t.TempDir()
	write := func(password string) {
		if err := os.WriteFile(filepath.Join(directory, "KEA_BASIC_AUTH_PASSWORD"), []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	w := newEnv(t, nil)
	w.f = w.function([]string{b.URL()}, "KEA_BASIC_AUTH_USERNAME=admin", "CREDENTIALS_DIR="+directory)
	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	deliver := func() string {
		_ = w.deliver("NetworkConfiguration", "vm", "dev.knative.apiserver.ref.add")
		return ready(w.get("vm"))
	}
	if got := deliver(); !strings.HasPrefix(got, "False KeaUnauthorized") {
		t.Fatalf("Kea has another password, but Ready is %s", got)
	}
	write("s3cret")
	for end := time.Now().Add(30 * time.Second); !strings.HasPrefix(deliver(), "True NetworkConfigured"); {
		if time.Now().After(end) {
			t.Fatalf("the password is corrected, but Ready is %s", ready(w.get("vm")))
		}
		time.Sleep(100 * time.Millisecond)
	}
}
