package redact_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tools/kubectl-viti/redact"
)

func TestText(t *testing.T) {
	t.Parallel()
	r := &redact.Redactor{}
	r.AddSecret(map[string][]byte{
		"password": []byte("hunter2"), "kubeconfig": []byte("users:\n- user: {token: x7Ywq93kfJ2mmZ01aabb}\n  server: https://10.0.0.5:6443\n"), "username": []byte("machine"), "pin": []byte("1234"),
	})
	for name, tc := range map[string]struct{ because, text, want string }{
		"Plain":    {"nothing of it is secret", "Machine shop/web waits for 10.0.0.5", "Machine shop/web waits for 10.0.0.5"},
		"Digest":   {"a digest is no secret", "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"},
		"PEM":      {"a key", "key:\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nend", "key:\n(removed)\nend"},
		"Cut":      {"a log line that is cut off", "-----BEGIN PRIVATE KEY-----\nMIIE", "(removed)"},
		"PEM64":    {"a key as in a kubeconfig", "data: LS0tLS1CRUdJTiBSU0E=", "data: (removed)"},
		"JWT":      {"a token of a ServiceAccount", "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl", "got (removed)"},
		"Bearer":   {"a header", "Authorization: Bearer abc.def", "Authorization: Bearer (removed)"},
		"Proxmox":  {"a header of Proxmox VE", "PVEAPIToken=root@pam!viti=1b2c", "PVEAPIToken=(removed)"},
		"JSON":     {"a field in a log line", `{"token":"s3cr3t","name":"web"}`, `{"token":"(removed)","name":"web"}`},
		"Escaped":  {"JSON in JSON", `{"body":"{\"password\":\"s3cr3t\"}"}`, `{"body":"{\"password\":\"(removed)"}"}`},
		"Query":    {"a parameter", "GET /x?api_key=s3cr3t&page=2", "GET /x?api_key=(removed)"},
		"URL":      {"credentials in a URL", "postgres://viti:s3cr3t@db:5432/viti", "postgres://(removed)@db:5432/viti"},
		"Talos":    {"the token of a machine configuration", "token abcdef.0123456789abcdef is wrong", "token (removed) is wrong"},
		"AWS":      {"an access key", "key AKIAIOSFODNN7EXAMPLE", "key (removed)"},
		"Value":    {"a value of a Secret", "login with hunter2 failed", "login with (removed) failed"},
		"Value64":  {"and in base64", "got " + base64.StdEncoding.EncodeToString([]byte("hunter2")), "got (removed)"},
		"Inside":   {"a token in a value of a Secret", "x7Ywq93kfJ2mmZ01aabb", "(removed)"},
		"Server":   {"an address in a Secret is no secret", "dial https://10.0.0.5:6443", "dial https://10.0.0.5:6443"},
		"Username": {"a user name is a word", "the machine runs", "the machine runs"},
		"Prose":    {"a kind and a name", "Machine platform/without-secret: Secret: it does not exist", "Machine platform/without-secret: Secret: it does not exist"},
		"Lines":    {"the value is on the same line", "secret:\n  name: web", "secret:\n  name: web"},
		"Short":    {"a short value is part of other words", "port 12345", "port 12345"},
	} {
		if got := r.Text(tc.text); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.because, got, tc.want)
		}
	}
}

// TestManySecrets redacts the logs and objects of an installation with many clusters. A time for each pair of a text and a value would add up to hours.
func TestManySecrets(t *testing.T) {
	t.Parallel()
	r := &redact.Redactor{}
	begun := time.Now()
	for i := range 30_000 {
		r.AddSecret(map[string][]byte{"token": fmt.Appendf(nil, "x7Ywq93kfJ2mmZ01-%d", i)})
	}
	for i := range 1000 {
		if got := r.Text(fmt.Sprintf("login %d with x7Ywq93kfJ2mmZ01-%d failed", i, 17*i)); got != fmt.Sprintf("login %d with (removed) failed", i) {
			t.Fatalf("got %q", got)
		}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because, object string
		kept, gone      []string
	}{
		"Secret": {"names and keys only", `{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: pve, annotations: {note: hello}}, data: {tokenSecret: aHVudGVyMg==}, stringData: {a: plainvalue}}`,
			[]string{"pve", "tokenSecret", "7 bytes", "hello"}, []string{"aHVudGVyMg==", "plainvalue"}},
		"Machine": {"user data has keys of users", `{kind: Machine, metadata: {name: web}, spec: {template: small, cloudInit: {userData: "#cloud-config\nssh: x", secretRef: {name: web-data, key: userdata}}}}`,
			[]string{"small", "web-data", "key: userdata"}, []string{"#cloud-config"}},
		"VirtualMachine": {"KubeVirt has user data in volumes", `{kind: VirtualMachine, spec: {template: {spec: {volumes: [{name: ci, cloudInitNoCloud: {userDataBase64: I2Nsb3Vk, secretRef: {name: web-cloudinit}}}]}}}}`,
			[]string{"web-cloudinit"}, []string{"I2Nsb3Vk"}},
		"Applied": {"the annotation of kubectl repeats the object", `{kind: Machine, metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: "userData: secret-thing", vitistack.io/reconcile: now}}}`,
			[]string{"vitistack.io/reconcile"}, []string{"secret-thing"}},
		"Env": {"an environment variable by its name", `{kind: Service, spec: {env: [{name: NAM_TOKEN, value: n4m}, {name: LOG_LEVEL, value: debug}]}}`, []string{"NAM_TOKEN", "debug"}, []string{"n4m"}},
		"Cluster": {"the status names Secrets", `{kind: KubernetesCluster, status: {secrets: {kubeconfig: web-kubeconfig}, endpoint: "https://10.0.0.5:6443"}}`,
			[]string{"web-kubeconfig", "https://10.0.0.5:6443"}, nil},
		"Event":   {"the name of an Event looks like a token", `{kind: Event, metadata: {name: legacy.18b1f2a3c4d5e6f7}}`, []string{"legacy.18b1f2a3c4d5e6f7"}, nil},
		"Message": {"a backend may quote a header", `{kind: Machine, status: {conditions: [{message: "401: Authorization: Bearer tok3n"}]}}`, []string{"401"}, []string{"tok3n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &u.Object); err != nil {
				t.Fatal(err)
			}
			before := u.DeepCopy()
			raw, err := yaml.Marshal((&redact.Redactor{}).Object(u).Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.kept {
				if !strings.Contains(string(raw), want) {
					t.Errorf("%s: %q is missing in\n%s", tc.because, want, raw)
				}
			}
			for _, secret := range tc.gone {
				if strings.Contains(string(raw), secret) {
					t.Errorf("%s: %q is left in\n%s", tc.because, secret, raw)
				}
			}
			if !strings.EqualFold(before.GetKind(), u.GetKind()) || len(before.Object) != len(u.Object) {
				t.Error("the object itself is changed")
			}
		})
	}
}
