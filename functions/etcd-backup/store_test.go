package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	s3client "github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/s3"
)

// objectStore returns a simulated object store and its location.
func objectStore(t *testing.T) (*s3.Store, v1alpha1.BackupStorage, *corev1.Secret) {
	t.Helper()
	sim := &s3.Store{Bucket: "snapshots", Region: "eu-north-1", KeyID: "key", Secret: "secret", PageSize: 2, Plan: &faults.Plan{}}
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	at := v1alpha1.BackupStorage{Type: v1alpha1.BackupS3, Endpoint: server.URL, Region: sim.Region, Bucket: sim.Bucket, SecretRef: &v1alpha1.LocalSecretReference{Name: "s3"}}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return sim, at, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3"}, Data: map[string][]byte{keyID: []byte("key"), keySecret: []byte("secret"), keyCA: ca}}
}

// TestStores checks each store against the contract.
func TestStores(t *testing.T) {
	t.Parallel()
	sim, at, secret := objectStore(t)
	inBucket, err := openBucket(at, secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]store{"Volume": volume{dir: t.TempDir()}, "S3": inBucket} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if files, err := kept.List(ctx, "a/b"); err != nil || len(files) != 0 {
				t.Errorf("the store must be empty: got %v, %v", files, err)
			}
			large := bytes.Repeat([]byte("etcd"), partSize/4+5)
			for range 2 { // the second call replaces the file
				if err := kept.Put(ctx, "a/b/one.db", bytes.NewReader(large)); err != nil {
					t.Fatal(err)
				}
			}
			if err := kept.Put(ctx, "a/bc/other.db", strings.NewReader("x")); err != nil {
				t.Fatal(err)
			}
			broken := io.MultiReader(bytes.NewReader(large), iotest.ErrReader(errDamaged))
			if err := kept.Put(ctx, "a/b/two.db", broken); !errors.Is(err, errDamaged) {
				t.Errorf("an incomplete file must not exist: got %v", err)
			}
			if files, err := kept.List(ctx, "a/b"); err != nil || !slices.Equal(files, []file{{"a/b/one.db", int64(len(large))}}) {
				t.Errorf("want one.db only, complete: got %v, %v", files, err)
			}
			many := []string{"a/c/1", "a/c/2", "a/c/3", "a/c/4", "a/c/5"}
			for _, name := range many {
				if err := kept.Put(ctx, name, strings.NewReader("x")); err != nil {
					t.Fatal(err)
				}
			}
			files, err := kept.List(ctx, "a/c")
			if slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) }); err != nil || len(files) != len(many) || files[4].name != many[4] {
				t.Errorf("want all of %v, whatever the page size: got %v, %v", many, files, err)
			}
			for range 2 { // the second call finds no file
				if err := kept.Delete(ctx, "a/b/one.db"); err != nil {
					t.Error(err)
				}
			}
			if files, err := kept.List(ctx, "a/b"); err != nil || len(files) != 0 {
				t.Errorf("the file was deleted: got %v, %v", files, err)
			}
		})
	}
	t.Cleanup(func() {
		if n := sim.Uploads(); n != 0 {
			t.Errorf("%d uploads were neither completed nor aborted", n)
		}
	})
}

// TestAbandoned leaves an incomplete file, as a process that dies does.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := volume{dir: dir}
	for name, age := range map[string]time.Duration{partName + "dead": 2 * abandonedAfter, partName + "alive": 0, "old.db": 2 * abandonedAfter} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(at, nil, 0o600), os.Chtimes(at, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := kept.Put(t.Context(), "new.db", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{partName + "alive", "new.db", "old.db"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the volume has %v (%v), want %v", names, err, want)
	}

	sim, at, secret := objectStore(t)
	opened, err := openBucket(at, secret)
	if err != nil {
		t.Fatal(err)
	}
	in := opened.(bucket)
	for key, age := range map[string]time.Duration{"a/dead.db": 2 * abandonedAfter, "a/alive.db": 0, "b/others.db": 2 * abandonedAfter} {
		sim.Now = func() time.Time { return time.Now().Add(-age) }
		if _, err := in.client.CreateMultipartUpload(t.Context(), &s3client.CreateMultipartUploadInput{Bucket: &in.name, Key: &key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Put(t.Context(), "a/new.db", bytes.NewReader(make([]byte, partSize))); err != nil {
		t.Fatal(err)
	}
	if n := sim.Uploads(); n != 2 {
		t.Errorf("%d uploads are left, want the recent one and that of another folder", n)
	}
}

// TestStorageRefuses distinguishes user errors from temporary ones.
func TestStorageRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.BackupStorage, *corev1.Secret)
		rule   faults.Rule
		want   string
	}{
		"Bucket":  {"the bucket has another name", func(at *v1alpha1.BackupStorage, _ *corev1.Secret) { at.Bucket = "other" }, faults.Rule{Times: 1}, "NoSuchBucket"},
		"Key":     {"the store does not know the key", func(_ *v1alpha1.BackupStorage, s *corev1.Secret) { s.Data[keyID] = []byte("x") }, faults.Rule{Times: 1}, "InvalidAccessKeyId"},
		"Secret":  {"the secret belongs to another key", func(_ *v1alpha1.BackupStorage, s *corev1.Secret) { s.Data[keySecret] = []byte("x") }, faults.Rule{Times: 1}, "SignatureDoesNotMatch"},
		"Parts":   {"the key may start, but not continue an upload", nil, faults.Rule{Operation: "UploadPart", Error: "AccessDenied"}, "AccessDenied"},
		"Rights":  {"the key may not write", nil, faults.Rule{Operation: "PutObject", Error: "AccessDenied"}, "AccessDenied"},
		"Missing": {"the Secret is incomplete", func(_ *v1alpha1.BackupStorage, s *corev1.Secret) { delete(s.Data, keySecret) }, faults.Rule{Times: 1}, "secretAccessKey"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, at, secret := objectStore(t)
			if tc.change != nil {
				tc.change(&at, secret)
			}
			if err := sim.Plan.Set(tc.rule); err != nil {
				t.Fatal(err)
			}
			kept, err := openBucket(at, secret)
			if err == nil {
				err = errors.Join(kept.Put(t.Context(), "a.db", strings.NewReader("x")), kept.Put(t.Context(), "b.db", bytes.NewReader(make([]byte, partSize))))
			}
			if f := (reconcile.UserError{}); !errors.As(err, &f) || !strings.Contains(f.Message, tc.want) {
				t.Errorf("%s: got %v, want an error with %s", tc.reason, err, tc.want)
			}
			if n := sim.Uploads(); n != 0 {
				t.Errorf("%d uploads are left", n)
			}
		})
	}
}

// TestStorageIsSilent has an endpoint that does not answer: the error says so in words that are the same for each attempt, and the snapshot is tried again.
func TestStorageIsSilent(t *testing.T) {
	t.Parallel()
	breaking := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(breaking.Close)
	for _, tc := range []struct{ reason, endpoint, want string }{
		{"nothing listens", "http://127.0.0.1:1", "connection refused"},
		{"it closes the connection", breaking.URL, "the server closed the connection before it had answered"},
	} {
		_, at, secret := objectStore(t)
		at.Endpoint = tc.endpoint
		kept, err := openBucket(at, secret)
		if err != nil {
			t.Fatal(err)
		}
		err = kept.Put(t.Context(), "a.db", strings.NewReader("x"))
		want := "write a.db: the object store at " + tc.endpoint + " does not answer: " + tc.want
		if err == nil || err.Error() != want || errors.As(err, new(reconcile.UserError)) {
			t.Errorf("%s: got %v, want %s", tc.reason, err, want)
		}
	}
}

// TestSSRF names the cloud's metadata service as the object store.
func TestSSRF(t *testing.T) {
	t.Parallel()
	_, at, secret := objectStore(t)
	at.Endpoint = "http://169.254.169.254"
	kept, err := openBucket(at, secret)
	if err != nil {
		t.Fatal(err)
	}
	var f reconcile.UserError
	if err := kept.Put(t.Context(), "a.db", strings.NewReader("x")); !errors.As(err, &f) || f.Reason != "EndpointNotAllowed" {
		t.Errorf("got %v", err)
	}
}

// TestPathTraversal has names lead out of the folder, as no API server lets them.
func TestPathTraversal(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	dir := filepath.Join(outside, "backups")
	kept := filepath.Join(outside, "kept.db")
	if err := os.WriteFile(kept, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../kept.db", "/etc/passwd", "a/../../kept.db", "", ".."} {
		v := volume{dir: dir}
		_, listed := v.List(t.Context(), name)
		for _, err := range []error{v.Put(t.Context(), name, strings.NewReader("y")), v.Delete(t.Context(), name), listed} {
			var f reconcile.UserError
			if !errors.As(err, &f) || f.Reason != "InvalidPath" {
				t.Errorf("%q: got %v", name, err)
			}
		}
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "x" {
		t.Errorf("a file outside of the folder changed: %q, %v", text, err)
	}
	b := &v1alpha1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "daily"}}
	b.Spec.StorageLocation.Path, b.Spec.ClusterName = "../../team-b", "../../../etc/x"
	if _, err := (volume{dir: dir}).pathOf(nameOf(b, "uid", time.Unix(0, 0), "a")); err == nil {
		t.Errorf("%s is inside the folder", nameOf(b, "uid", time.Unix(0, 0), "a"))
	}
}

func TestVolumeIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := (volume{dir: dir}).Put(t.Context(), "a/b.db", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	matches, err := filepath.Glob(filepath.Join(dir, "a", ".part-*"))
	if err != nil || len(matches) > 0 {
		t.Errorf("left over: %v, %v", matches, err)
	}
}
