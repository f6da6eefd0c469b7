package main

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// TestSecretsNotAllowed has backups need Secrets in a namespace where the function has no rights on
// Secrets: the credentials of the object store, and the talosconfig of the cluster.
func TestSecretsNotAllowed(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	_, at, secret := objectStore(t)
	s.create(secret)
	limited, err := kube.New(apiserver.Start(t).WithoutSecrets(t), "test", v1alpha1.AddToScheme, core)
	if err != nil {
		t.Fatal(err)
	}
	all := s.function.kube
	for name, location := range map[string]v1alpha1.BackupStorage{"s3": at, "local": {Type: v1alpha1.BackupLocal}} {
		b := backupTo(location, "", 1)
		b.Name = name
		s.create(b)
		s.function.kube, s.function.now = limited, time.Now
		b = s.resync(name)
		s.expect(b, v1alpha1.EtcdBackupPending, "SecretsNotAllowed")
		if message := b.Status.Conditions[0].Message; !strings.Contains(message, `cannot get resource "secrets"`) || !strings.Contains(message, "bind ClusterRole vitistack-etcd-backup-secrets") {
			t.Errorf("EtcdBackup %s: %q does not name the remedy", name, message)
		}
		s.function.kube = all
		s.expect(s.resync(name), v1alpha1.EtcdBackupCompleted, "Completed")
	}
}
