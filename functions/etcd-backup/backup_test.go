package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	contracts "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/loopback"
	"github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// stand is an API server with a cluster of one simulated node, as bootstrap-talos
// leaves it.
type stand struct {
	*testing.T
	namespace, address string
	kube               *kube.Client
	function           *function
	plan               *faults.Plan
	talosconfig        *config.Config
	next               int
}

const version = "v1.13.9"

func setUp(t *testing.T) *stand {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	api, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, core)
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{T: t, namespace: server.Namespace(t), kube: api, plan: &faults.Plan{}}
	s.function = &function{kube: api, volume: t.TempDir(), now: time.Now, attemptTimeout: attemptTimeout}
	s.powerOn()
	return s
}

// powerOn brings up a node with a cluster on it.
func (s *stand) powerOn() {
	s.Helper()
	net, err := loopback.Claim()
	if err != nil {
		s.Fatal(err)
	}
	fleet, err := talos.Open(s.TempDir(), s.plan, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = fleet.Close()
		_ = net.Close()
	})
	s.address = net.Address(2).Addr().String()
	err = fleet.PowerOn(s.Context(), talos.Machine{
		ID: uuid.NewString(), Links: []talos.Link{{Name: "eth0", MAC: "02:00:00:00:00:02"}}, Address: net.Address(2),
		Version: version, Kind: "metal", Preinstalled: true, Disks: []talos.Disk{{Device: "/dev/vda", Size: 20 << 30}},
	})
	if err != nil {
		s.Fatal(err)
	}
	contract, err := contracts.ParseContractFromVersion(version)
	if err != nil {
		s.Fatal(err)
	}
	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		s.Fatal(err)
	}
	pair, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		s.Fatal(err)
	}
	s.talosconfig = config.NewConfig("shop", []string{s.address}, bundle.Certs.OS.Crt, pair)
	s.configure(bundle, contract)
	s.eventually("etcd begins", func(ctx context.Context, c *client.Client) error {
		err := c.Bootstrap(ctx, &machine.BootstrapRequest{})
		if client.StatusCode(err) == codes.AlreadyExists {
			return nil
		}
		return err
	})
	s.etcdIs("Running")
	s.publish()
}

// etcdIs waits until the service etcd of the node is in a state.
func (s *stand) etcdIs(state string) {
	s.Helper()
	s.eventually("etcd is "+state, func(ctx context.Context, c *client.Client) error {
		info, err := c.ServiceInfo(ctx, "etcd")
		if err == nil && (len(info) != 1 || info[0].Service.GetState() != state) {
			err = fmt.Errorf("etcd is %v", info)
		}
		return err
	})
}

// TestNodeWithoutEtcd asks a node for a snapshot whose etcd waits for a bootstrap. The
// refusal is immediate, and says why.
func TestNodeWithoutEtcd(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.eventually("etcd's data is wiped", func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	})
	s.etcdIs("Preparing")
	document, err := s.talosconfig.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := openSnapshot(ctx, document)
	if err == nil {
		_ = stream.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "etcd is Preparing") || ctx.Err() != nil {
		t.Errorf("want a refusal that says what etcd does, got %v", err)
	}
}

func (s *stand) configure(bundle *secrets.Bundle, contract *contracts.VersionContract) {
	s.Helper()
	in, err := generate.NewInput("shop", "https://"+s.address+":6443", "1.34.1",
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(contract), generate.WithInstallDisk("/dev/vda"))
	if err != nil {
		s.Fatal(err)
	}
	cfg, err := in.Config(machinetype.TypeControlPlane)
	if err != nil {
		s.Fatal(err)
	}
	data, err := cfg.Bytes()
	if err != nil {
		s.Fatal(err)
	}
	insecure, err := client.New(s.Context(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(s.address))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = insecure.Close() }()
	feed.Until(s, "the node takes its configuration", func() (bool, string) {
		_, err := insecure.ApplyConfiguration(s.Context(), &machine.ApplyConfigurationRequest{Data: data})
		return err == nil, fmt.Sprint(err)
	})
}

// eventually calls the node until it does what it is asked.
func (s *stand) eventually(what string, do func(context.Context, *client.Client) error) {
	s.Helper()
	feed.Until(s, what, func() (bool, string) {
		c, err := client.New(s.Context(), client.WithConfig(s.talosconfig))
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = c.Close() }()
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		err = do(ctx, c)
		return err == nil, fmt.Sprint(err)
	})
}

// publish makes the objects that bootstrap-talos would.
func (s *stand) publish() {
	s.Helper()
	data, err := s.talosconfig.Bytes()
	if err != nil {
		s.Fatal(err)
	}
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-talosconfig"}, Data: map[string][]byte{"talosconfig": data}})
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	kc.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.34", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	s.create(kc)
	before := kc.DeepCopy()
	kc.Status.Secrets = &v1alpha1.ClusterSecrets{Talosconfig: "shop-talosconfig"}
	if _, err := s.kube.PatchStatus(s.Context(), before, kc); err != nil {
		s.Fatal(err)
	}
}

func (s *stand) create(obj kube.Object) {
	s.Helper()
	obj.SetNamespace(s.namespace)
	if err := s.kube.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
}

// workload is a client for the cluster's own API.
func (s *stand) workload() *kubernetes.Clientset {
	s.Helper()
	var kubeconfig []byte
	s.eventually("the kubeconfig is there", func(ctx context.Context, c *client.Client) (err error) {
		kubeconfig, err = c.Kubeconfig(ctx)
		return err
	})
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		s.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		s.Fatal(err)
	}
	feed.Until(s, "the cluster answers", func() (bool, string) {
		_, err := api.CoreV1().Namespaces().Get(s.Context(), "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return api
}

// look delivers an event about a backup, and returns what has become of it.
func (s *stand) look(name string) *v1alpha1.EtcdBackup {
	s.Helper()
	s.next++
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdBackup", Namespace: s.namespace, Name: name}
	if _, err := s.function.handle(s.Context(), events.LookAgain("/functions/resync", ref, "uid", fmt.Sprint(s.next))); err != nil {
		s.Fatal(err)
	}
	return s.backup(name)
}

// backup is what the API server has of a backup.
func (s *stand) backup(name string) *v1alpha1.EtcdBackup {
	s.Helper()
	b := &v1alpha1.EtcdBackup{}
	if err := s.kube.Get(s.Context(), s.namespace, name, b); err != nil {
		s.Fatal(err)
	}
	return b
}

// sleeps delivers the event of a backup's own writing, which must change nothing.
func (s *stand) sleeps(name, reason string) {
	s.Helper()
	before := s.backup(name)
	e := events.LookAgain("/functions/resync", events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdBackup", Namespace: s.namespace, Name: name}, "uid", "own")
	e.SetType(events.TypeRefUpdate)
	if _, err := s.function.handle(s.Context(), e); err != nil {
		s.Fatal(err)
	}
	if s.backup(name).ResourceVersion != before.ResourceVersion {
		s.Errorf("it was written to: %s", reason)
	}
}

func (s *stand) expect(b *v1alpha1.EtcdBackup, phase v1alpha1.EtcdBackupPhase, reason string) {
	s.Helper()
	if len(b.Status.Conditions) != 1 || b.Status.Phase != phase || b.Status.Conditions[0].Reason != reason {
		s.Fatalf("want %s, %s; got %s, %+v", phase, reason, b.Status.Phase, b.Status.Conditions)
	}
}

func backupTo(at v1alpha1.BackupStorage, schedule string, retention int32) *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec:       v1alpha1.EtcdBackupSpec{ClusterName: "shop", Schedule: schedule, Retention: retention, StorageLocation: at},
	}
}

// TestBackups takes snapshots by schedule into an object store.
func TestBackups(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	sim, at, secret := objectStore(t)
	s.create(backupTo(at, "0 2 * * *", 2))
	clock := time.Now()
	s.function.now = func() time.Time { return clock }
	b := s.look("nightly")
	s.expect(b, v1alpha1.EtcdBackupPending, "CredentialsNotFound") // long before it would hinder anything
	if b.Status.NextBackupTime == nil || b.Status.NextCheckTime != nil {
		t.Errorf("the next is due at %v, but resync looks every time at what is hindered: %v", b.Status.NextBackupTime, b.Status.NextCheckTime)
	}
	s.create(secret)
	s.expect(s.look("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
	clock = clock.Add(24 * time.Hour)
	for range 3 {
		b := s.look("nightly")
		s.expect(b, v1alpha1.EtcdBackupScheduled, "Scheduled")
		newest := b.Status.Backups[0]
		content, ok := sim.Object(newest.Name)
		if sum := sha256.Sum256(content); !ok || hex.EncodeToString(sum[:]) != newest.SHA256 || int64(len(content)) != newest.Size {
			t.Errorf("%+v is not what is stored: %d bytes, %x", newest, len(content), sum)
		}
		if again := s.look("nightly"); again.ResourceVersion != b.ResourceVersion {
			t.Error("nothing was due, and something was written")
		}
		clock = clock.Add(24 * time.Hour)
	}
	keys := sim.Keys()
	if len(keys) != 4 || !strings.HasSuffix(keys[0], "T020000Z.db") || keys[1] != keys[0]+".sha256" {
		t.Errorf("two snapshots with their hashes are kept: got %v", keys)
	}
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/EtcdSnapshot", Error: "unavailable"}); err != nil {
		t.Fatal(err)
	}
	b = s.look("nightly")
	s.expect(b, v1alpha1.EtcdBackupFailed, "BackupFailed")
	if b.Status.NextCheckTime != nil {
		t.Errorf("one that has failed is tried again by the next resync, not at %v", b.Status.NextCheckTime)
	}
	s.sleeps("nightly", "its own writing is no cause to try again at once")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.expect(s.look("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
}

// TestRetention has the store refuse for a while to delete what is too much.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	sim, at, secret := objectStore(t)
	s.create(secret)
	s.create(backupTo(at, "0 2 * * *", 1))
	clock := time.Now()
	s.function.now = func() time.Time { return clock }
	clock = clock.Add(24 * time.Hour)
	s.expect(s.look("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
	if err := sim.Plan.Set(faults.Rule{Operation: "DeleteObject", Error: "AccessDenied"}); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(24 * time.Hour)
	for range 2 { // the snapshot is kept, and taken once
		b := s.look("nightly")
		s.expect(b, v1alpha1.EtcdBackupFailed, "StorageRefused")
		s.sleeps("nightly", "that nothing is due does not mean that nothing is wrong")
		if len(b.Status.Backups) != 2 || b.Status.Backups[0].SHA256 == "" || len(sim.Keys()) != 4 {
			t.Errorf("got %+v, and %v in the store", b.Status.Backups, sim.Keys())
		}
	}
	if err := sim.Plan.Set(); err != nil {
		t.Fatal(err)
	}
	b := s.look("nightly")
	s.expect(b, v1alpha1.EtcdBackupScheduled, "Scheduled")
	if len(b.Status.Backups) != 1 || b.Status.Backups[0].SHA256 == "" || len(sim.Keys()) != 2 {
		t.Errorf("got %+v, and %v in the store, want the newest only", b.Status.Backups, sim.Keys())
	}
}

// TestRestore does what the README tells people to do.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	precious := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "precious"}, Data: map[string]string{"a": "b"}}
	if _, err := s.workload().CoreV1().ConfigMaps("default").Create(t.Context(), precious, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	b := s.look("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	snapshot, err := os.ReadFile(s.function.volume + "/" + b.Status.Backups[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.workload().CoreV1().ConfigMaps("default").Delete(t.Context(), "precious", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("etcd's data is wiped", func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	})
	damaged := bytes.Clone(snapshot)
	damaged[len(damaged)/2]++
	s.eventually("a damaged snapshot is refused", func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(damaged)); err != nil {
			return err
		}
		if err := c.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true}); err == nil || !strings.Contains(err.Error(), "sha256") {
			return errors.Join(errors.New("it should say that the hash does not match"), err)
		}
		return nil
	})
	s.eventually("etcd is recovered", func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(snapshot)); err != nil {
			return err
		}
		return c.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true})
	})
	feed.Until(t, "what was deleted is there again", func() (bool, string) {
		cm, err := s.workload().CoreV1().ConfigMaps("default").Get(t.Context(), "precious", metav1.GetOptions{})
		return err == nil && cm.Data["a"] == "b", fmt.Sprint(err, apierrors.IsNotFound(err))
	})
}
