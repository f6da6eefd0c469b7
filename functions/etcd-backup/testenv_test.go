package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
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

// env is an API server with a cluster of one simulated node, as bootstrap-talos creates it.
type env struct {
	*testing.T
	namespace, address string
	kube               *kube.Client
	function           *function
	plan               *faults.Plan
	talosconfig        *config.Config
	next               int
}

const version = "v1.13.9"

func setUp(t *testing.T) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	api, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, core)
	if err != nil {
		t.Fatal(err)
	}
	own, err := kube.New(server.Config(), functionName, v1alpha1.AddToScheme, core)
	if err != nil {
		t.Fatal(err)
	}
	s := &env{T: t, namespace: server.Namespace(t), kube: api, plan: &faults.Plan{}}
	s.function = &function{kube: own, volume: t.TempDir(), now: time.Now, attemptTimeout: attemptTimeout}
	s.powerOn()
	return s
}

// powerOn starts a node and bootstraps a cluster on it.
func (s *env) powerOn() {
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
	s.awaitEtcdState("Running")
	s.publish()
}

// awaitEtcdState waits until the service etcd of the node is in a state.
func (s *env) awaitEtcdState(state string) {
	s.Helper()
	s.eventually("etcd is "+state, func(ctx context.Context, c *client.Client) error {
		info, err := c.ServiceInfo(ctx, "etcd")
		if err == nil && (len(info) != 1 || info[0].Service.GetState() != state) {
			err = fmt.Errorf("etcd is %v", info)
		}
		return err
	})
}

func (s *env) configure(bundle *secrets.Bundle, contract *contracts.VersionContract) {
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
	feed.Until(s, "the node accepts its configuration", func() (bool, string) {
		_, err := insecure.ApplyConfiguration(s.Context(), &machine.ApplyConfigurationRequest{Data: data})
		return err == nil, fmt.Sprint(err)
	})
}

// eventually calls do until it succeeds.
func (s *env) eventually(what string, do func(context.Context, *client.Client) error) {
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

// publish creates the objects that bootstrap-talos would.
func (s *env) publish() {
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

func (s *env) create(obj kube.Object) {
	s.Helper()
	obj.SetNamespace(s.namespace)
	if err := s.kube.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
}

// workload returns a client for the cluster's own API.
func (s *env) workload() *kubernetes.Clientset {
	s.Helper()
	var kubeconfig []byte
	s.eventually("the kubeconfig is available", func(ctx context.Context, c *client.Client) (err error) {
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

// resync delivers an event about a backup, and returns the backup.
func (s *env) resync(name string) *v1alpha1.EtcdBackup {
	s.Helper()
	s.next++
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdBackup", Namespace: s.namespace, Name: name}
	if _, err := s.function.handle(s.Context(), events.NewReconcileRequest("/functions/resync", ref, "uid", fmt.Sprint(s.next))); err != nil {
		s.Fatal(err)
	}
	return s.backup(name)
}

// backup returns a backup as the API server has it.
func (s *env) backup(name string) *v1alpha1.EtcdBackup {
	s.Helper()
	b := &v1alpha1.EtcdBackup{}
	if err := s.kube.Get(s.Context(), s.namespace, name, b); err != nil {
		s.Fatal(err)
	}
	return b
}

// changed delivers the event of a change of a backup.
func (s *env) changed(name string) {
	s.Helper()
	e := events.NewReconcileRequest("/functions/resync", events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdBackup", Namespace: s.namespace, Name: name}, "uid", "own")
	e.SetType(events.TypeRefUpdate)
	if _, err := s.function.handle(s.Context(), e); err != nil {
		s.Fatal(err)
	}
}

// requireIdle delivers the event of a backup's own status write, which must change nothing.
func (s *env) requireIdle(name, reason string) {
	s.Helper()
	before := s.backup(name)
	s.changed(name)
	if s.backup(name).ResourceVersion != before.ResourceVersion {
		s.Errorf("it was written to: %s", reason)
	}
}

func (s *env) expect(b *v1alpha1.EtcdBackup, phase v1alpha1.EtcdBackupPhase, reason string) {
	s.Helper()
	if len(b.Status.Conditions) == 0 || b.Status.Phase != phase || b.Status.Conditions[0].Reason != reason {
		s.Fatalf("want %s, %s; got %s, %+v", phase, reason, b.Status.Phase, b.Status.Conditions)
	}
}
