package talos

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	stdx509 "crypto/x509"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configs "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// onlyControlPlane rejects a method on a worker, and without a configuration, when the machine type is unknown.
func (b *boot) onlyControlPlane(name string) error {
	if !b.node.controlPlane() {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", name)
	}
	return nil
}

// Version returns the version of Talos.
func (a *api) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	v := &machineapi.Version{
		Version: &machineapi.VersionInfo{
			Tag: b.node.Release.Version, Os: "linux", Arch: "amd64", GoVersion: runtime.Version(),
		},
		Platform: &machineapi.PlatformInfo{Name: b.node.Machine.Kind, Mode: b.node.Machine.mode().String()},
	}
	if b.node.config != nil {
		v.Features = &machineapi.FeaturesInfo{Rbac: true}
	}
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{v}}, nil
}

// Hostname returns the name of the machine.
func (a *api) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	unlock, err := a.boot.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: a.boot.network.hostname}}}, nil
}

// Bootstrap makes the machine the first member of the cluster's etcd. As in Talos 1.13
// (internal/app/machined: Server.Bootstrap, services.Etcd.PreFunc), the request is kept in memory
// until etcd's image is pulled: a power cut before that loses it, and another request before that is
// accepted and starts the pull again. A request is rejected only if there is data.
func (a *api) Bootstrap(_ context.Context, in *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	b.printf("[talos] bootstrap request received")
	n := b.node
	if !n.atLeast(config.TalosVersion1_13) && n.config != nil && !n.controlPlane() {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	}
	if !b.services {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}
	if err := b.onlyControlPlane("bootstrap"); err != nil {
		return nil, err
	}
	c := n.cluster()
	if n.Etcd != nil || c.quorum() || c.beginning() || c.pulling(n) {
		if n.Etcd == nil {
			n.fleet.log.Warn("bootstrap refused: a real node would have split the cluster", "machine", n.Machine.ID, "cluster", c.Key)
		}
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	restore := func() error { return nil }
	switch {
	case in.RecoverEtcd:
		if restore, err = c.recover(n, in.RecoverSkipHashCheck); err != nil {
			return nil, err
		}
	case c.Etcd != nil:
		restore = func() error { c.replaceObjects(); return nil }
	}
	b.pullEtcd(restore)
	n.fleet.reconcile(c)
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// pullEtcd pulls etcd's image from the beginning, and then bootstraps the cluster's etcd.
func (b *boot) pullEtcd(restore func() error) {
	n := b.node
	if b.pulling != nil {
		b.pulling.Stop()
	}
	b.printf("[talos] service[etcd](Preparing): pulling the image of etcd")
	var pull *time.Timer
	pull = b.later(n.fleet.timing.vary(n.fleet.timing.EtcdPull), func() {
		c := n.cluster()
		if b.pulling != pull || c == nil || n.Etcd != nil {
			return // another request has started the pull again
		}
		b.pulling = nil
		if err := restore(); err != nil {
			b.fail("recover etcd", err)
			return
		}
		c.found(n)
		b.etcd = etcdDown
		n.fleet.reconcile(c)
	})
	b.pulling = pull
}

// pulling reports whether the bootstrap of another machine waits for etcd's image.
func (c *cluster) pulling(except *node) bool {
	return slices.ContainsFunc(c.controlPlanes(), func(n *node) bool { return n != except && n.boot.pulling != nil })
}

// beginning reports whether a bootstrapped etcd is starting.
func (c *cluster) beginning() bool {
	for _, n := range c.controlPlanes() {
		if m, ok := c.memberOf(n); ok && !m.Learner && n.boot.etcd == etcdStarting {
			return true
		}
	}
	return false
}

// Kubeconfig streams an archive with an administrator's kubeconfig.
func (a *api) Kubeconfig(_ *emptypb.Empty, out grpc.ServerStreamingServer[common.Data]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	err = b.onlyControlPlane("kubeconfig")
	cfg := b.node.config
	unlock()
	if err != nil {
		return err
	}
	data, err := kubeconfig(cfg.Cluster(), time.Now())
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "kubeconfig", Size: int64(len(data)), ModTime: time.Now(), Mode: 0o600}
	if err := files.WriteHeader(header); err != nil {
		return err
	}
	if _, err := files.Write(data); err != nil {
		return err
	}
	if err := files.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return out.Send(&common.Data{Bytes: archive.Bytes()})
}

// kubeconfig returns the kubeconfig of a new administrator.
func kubeconfig(k configs.ClusterConfig, now time.Time) ([]byte, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(k.IssuingCA())
	if err != nil {
		return nil, fmt.Errorf("error getting Kubernetes CA: %w", err)
	}
	admin := k.AdminKubeconfig()
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(admin.CommonName()), x509.Organization(admin.CertOrganization()),
		x509.NotBefore(now.Add(-10*time.Second)), x509.NotAfter(now.Add(admin.CertLifetime())),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	)
	if err != nil {
		return nil, fmt.Errorf("error generating Kubernetes client certificate: %w", err)
	}
	signed := x509.NewCertificateAndKeyFromKeyPair(pair)
	var authorities []byte
	for _, accepted := range k.AcceptedCAs() {
		authorities = append(authorities, accepted.Crt...)
	}
	authorities = append(authorities, k.IssuingCA().Crt...)
	user := "admin@" + k.Name()
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{k.Name(): {Server: k.Endpoint().String(), CertificateAuthorityData: authorities}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: signed.Crt, ClientKeyData: signed.Key}},
		Contexts:       map[string]*clientcmdapi.Context{user: {Cluster: k.Name(), Namespace: "default", AuthInfo: user}},
		CurrentContext: user,
	})
}

// ServiceList returns the machine's services and their states.
func (a *api) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := &machineapi.ServiceList{}
	at := timestamppb.New(b.began)
	for _, s := range servicesOf(b.facts()) {
		info := &machineapi.ServiceInfo{
			Id: s.id, State: s.state,
			Events: &machineapi.ServiceEvents{Events: []*machineapi.ServiceEvent{{Msg: s.message, State: s.state, Ts: at}}},
			Health: &machineapi.ServiceHealth{Unknown: s.unknown, Healthy: s.healthy, LastChange: at},
		}
		if s.running && !s.healthy && !s.unknown {
			info.Health.LastMessage = s.message
		}
		list.Services = append(list.Services, info)
	}
	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{list}}, nil
}

// ServiceRestart restarts the kubelet, which registers its Node again. Other services cannot be
// restarted.
func (a *api) ServiceRestart(_ context.Context, in *machineapi.ServiceRestartRequest) (*machineapi.ServiceRestartResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	known := slices.ContainsFunc(servicesOf(b.facts()), func(s service) bool { return s.id == in.Id })
	switch {
	case !known:
		return nil, fmt.Errorf("service %q not registered", in.Id)
	case in.Id != "kubelet":
		return nil, fmt.Errorf("service %q doesn't support restart operation via API", in.Id)
	}
	b.joined = ""
	b.node.fleet.reconcile(b.node.cluster())
	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{Resp: fmt.Sprintf("Service %q restarted", in.Id)}}}, nil
}

// GenerateClientConfiguration signs a client certificate for the given roles.
func (a *api) GenerateClientConfiguration(_ context.Context, in *machineapi.GenerateClientConfigurationRequest) (*machineapi.GenerateClientConfigurationResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.onlyControlPlane("generate client configuration"); err != nil {
		return nil, err
	}
	ttl := in.CrtTtl.AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}
	roles, _ := role.Parse(in.Roles)
	bundle := secrets.NewBundleFromConfig(secrets.NewFixedClock(time.Now()), b.node.config)
	cert, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, err
	}
	name := b.node.config.Cluster().Name()
	if only := roles.Strings(); len(only) == 1 {
		name = strings.TrimPrefix(only[0], role.Prefix) + "@" + name
	}
	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, cert).Bytes()
	if err != nil {
		return nil, err
	}
	return &machineapi.GenerateClientConfigurationResponse{Messages: []*machineapi.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: cert.Crt, Key: cert.Key, Talosconfig: talosconfig,
	}}}, nil
}

// systemDisk returns the disk with Talos, or the one for its installation.
func (n *node) systemDisk() Disk {
	want := ""
	if n.config != nil {
		want = n.config.Machine().Install().Disk()
	}
	for _, d := range n.Machine.Disks {
		if d.Device == want {
			return d
		}
	}
	if len(n.Machine.Disks) > 0 {
		return n.Machine.Disks[0]
	}
	return Disk{Device: cmp.Or(want, "/dev/vda")}
}
