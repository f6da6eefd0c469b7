package manifest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// fakeStore has ConfigMaps and Secrets of one namespace by name.
type fakeStore struct {
	configMaps, secrets map[string]map[string]string
	err                 error
}

func (f fakeStore) ConfigMap(_ context.Context, namespace, name string) (map[string]string, error) {
	return f.get(f.configMaps, namespace, name)
}

func (f fakeStore) Secret(_ context.Context, namespace, name string) (map[string]string, error) {
	return f.get(f.secrets, namespace, name)
}

func (f fakeStore) get(objects map[string]map[string]string, namespace, name string) (map[string]string, error) {
	if f.err != nil {
		return nil, f.err
	}
	if values, ok := objects[name]; ok && namespace == "ns" {
		return values, nil
	}
	return nil, ErrAbsent
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	store := fakeStore{
		configMaps: map[string]map[string]string{"config": {"A": "config a", "B": "config b"}},
		secrets:    map[string]map[string]string{"secret": {"B": "secret b", "C": "secret c"}},
	}
	down := errors.New("the API server is down")
	cases := map[string]struct {
		reason    string
		container string
		store     Store
		want      map[string]string
		wantArgs  []string
		wantErr   error
	}{
		"Order":          {reason: "later sources take precedence, and env over all", container: "{envFrom: [{configMapRef: {name: config}}, {secretRef: {name: secret}}], env: [{name: C, value: env c}]}", want: map[string]string{"A": "config a", "B": "secret b", "C": "env c"}},
		"Prefix":         {reason: "a source may have a prefix", container: "{envFrom: [{prefix: X_, configMapRef: {name: config}}]}", want: map[string]string{"X_A": "config a", "X_B": "config b"}},
		"Optional":       {reason: "an optional reference may be missing", container: "{envFrom: [{configMapRef: {name: absent, optional: true}}, {secretRef: {name: absent, optional: true}}], env: [{name: A, valueFrom: {configMapKeyRef: {name: absent, key: A, optional: true}}}, {name: B, valueFrom: {secretKeyRef: {name: secret, key: absent, optional: true}}}]}", want: map[string]string{}},
		"ConfigMapKey":   {reason: "one key of a ConfigMap", container: "{env: [{name: X, valueFrom: {configMapKeyRef: {name: config, key: A}}}]}", want: map[string]string{"X": "config a"}},
		"SecretKey":      {reason: "one key of a Secret", container: "{env: [{name: X, valueFrom: {secretKeyRef: {name: secret, key: C}}}]}", want: map[string]string{"X": "secret c"}},
		"Fields":         {reason: "fields of the pod", container: "{env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: YY, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}]}", want: map[string]string{"X": "ns", "YY": "account"}},
		"Expansion":      {reason: "earlier values are expanded, also in args", container: "{args: ['--x=$(X)', '$$(X)'], env: [{name: X, value: x}, {name: YY, value: '$(X)/$(Z)'}]}", want: map[string]string{"X": "x", "YY": "x/$(Z)"}, wantArgs: []string{"--x=x", "$(X)"}},
		"NoConfigMap":    {reason: "a required reference must exist", container: "{envFrom: [{configMapRef: {name: absent}}]}", wantErr: ErrAbsent},
		"NoSecret":       {reason: "a required reference must exist", container: "{envFrom: [{secretRef: {name: absent}}]}", wantErr: ErrAbsent},
		"NoConfigMapKey": {reason: "a required reference must exist", container: "{env: [{name: X, valueFrom: {configMapKeyRef: {name: config, key: absent}}}]}", wantErr: ErrAbsent},
		"NoSecretKey":    {reason: "a required reference must exist", container: "{env: [{name: X, valueFrom: {secretKeyRef: {name: secret, key: absent}}}]}", wantErr: ErrAbsent},
		"StoreDown":      {reason: "a read error is an error even if the reference is optional", container: "{envFrom: [{configMapRef: {name: config, optional: true}}]}", store: fakeStore{err: down}, wantErr: down},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := Program{Namespace: "ns", Name: "program", ServiceAccount: "account"}
			if err := yaml.UnmarshalStrict([]byte(tc.container), &program.Container); err != nil {
				t.Fatal(err)
			}
			if tc.store == nil {
				tc.store = store
			}
			got, args, err := program.Environment(t.Context(), tc.store)
			if !errors.Is(err, tc.wantErr) {
				t.Fatalf("%s: got error %v, want %v", tc.reason, err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: environment (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.wantArgs, args); diff != "" {
				t.Errorf("%s: arguments (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	t.Parallel()
	for name, container := range map[string]corev1.Container{
		"Field":    {Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}},
		"Resource": {Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}}},
		"Nothing":  {EnvFrom: []corev1.EnvFromSource{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := (Program{Container: container}).Environment(t.Context(), fakeStore{}); err == nil {
				t.Error("an unresolvable reference was ignored")
			}
		})
	}
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		volume corev1.VolumeSource
		valid  bool
	}{
		"EmptyDir": {reason: "an emptyDir is a directory", volume: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, valid: true},
		"Claim":    {reason: "a claim is a directory", volume: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, valid: true},
		"Secret":   {reason: "files of a Secret cannot be mounted", volume: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := Program{
				Volumes:   []corev1.Volume{{Name: "v", VolumeSource: tc.volume}},
				Container: corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/data/"}}},
			}
			got, err := program.Directories()
			if (err == nil) != tc.valid {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(map[string]string{"/data": "v"}, got); tc.valid && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestProjected(t *testing.T) {
	t.Parallel()
	secret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}}}
	one := secret.DeepCopy()
	one.Secret.Items = []corev1.KeyToPath{{Key: "a", Path: "b"}}
	for name, tc := range map[string]struct {
		reason string
		source corev1.VolumeProjection
		valid  bool
	}{
		"Secret": {reason: "a SinkBinding of Knative mounts its token in this form", source: secret, valid: true},
		"Items":  {reason: "files with other names are not supported", source: *one},
		"Token":  {reason: "no kubelet renews the token", source: corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}},
	} {
		program := Program{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{tc.source}}}}}}
		got, err := program.Projected()
		if (err == nil) != tc.valid {
			t.Errorf("%s: %v: %s", name, err, tc.reason)
		}
		if diff := cmp.Diff(map[string][]corev1.SecretProjection{"v": {*secret.Secret}}, got); tc.valid && diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestRelocate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, text, want string }{
		"Whole":   {"the path itself", "/data", "/new"},
		"Below":   {"a path below it", "/data/x.db", "/new/x.db"},
		"InURL":   {"a path in a URL", "sqlite:///data/x.db?mode=rw", "sqlite:///new/x.db?mode=rw"},
		"Twice":   {"every occurrence", "/data:/data/x", "/new:/new/x"},
		"Longer":  {"a longer name is another path", "/database /data2", "/database /data2"},
		"Deeper":  {"the end of another path is another path", "/var/data/x", "/var/data/x"},
		"Nothing": {"anything else", "postgres://host/db", "postgres://host/db"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Relocate(tc.text, "/data", "/new")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
