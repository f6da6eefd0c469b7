// Package kubernetes runs a cluster of one real node in a lab: the control plane, kubelet, containerd and kube-proxy, which
// build.sh builds, as services. The README of tests/node says what is real.
package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/tests/stand/audit"
	"github.com/vitistack/stack/tests/stand/cgroup"
	"github.com/vitistack/stack/tests/stand/lab"
)

const (
	// NodeName is the name of the node.
	NodeName = "node-1"
	// Address is the address of the node, its API server and the registry. Clients of registries use plain HTTP for
	// addresses of private networks.
	Address = lab.Gateway
	// Registry is the address of the registry from which containerd pulls images, and which a suite serves.
	Registry = Address + ":5000"
	// Version is that of the programs of build.sh, and of k8s.io/kubernetes in the go.mod of the local engine.
	Version    = "1.35.6"
	apiURL     = "https://" + Address + ":6443"
	pods       = "10.196.0.0/16"
	services   = "10.197.0.0/16"
	apiService = "10.197.0.1"
	dnsService = "10.197.0.10"
	etcdURL    = "http://127.0.0.1:2379"
)

// Node is a node with its control plane.
type Node struct {
	// Services are the started services by name.
	Services map[string]*Service

	folder   string // everything that changes
	programs []string
	cgroup   string
	keys     *keys
}

// NewNode creates the files of a node in a lab, and mounts folders over those of the machine. Nothing runs yet. The folders
// programs have what build.sh builds; containerd also looks there for CNI plugins.
func NewNode(l lab.Lab, programs ...string) (*Node, error) {
	m := &Node{folder: filepath.Join(l.Nodes(), NodeName), programs: programs, cgroup: l.Cgroup(NodeName), Services: map[string]*Service{}}
	if err := errors.Join(enterCgroup(l.Cgroup("services")), createCgroup(m.cgroup), os.MkdirAll(m.Path("logs"), 0o700), m.mount(), route()); err != nil {
		return nil, err
	}
	var err error
	if m.keys, err = newKeys(m.Path("keys")); err != nil {
		return nil, err
	}
	return m, errors.Join(m.issue(), m.writeConfiguration())
}

// Kubeconfig returns the file of the administrator's kubeconfig.
func (m *Node) Kubeconfig() string { return m.keys.path("admin.kubeconfig") }

// Program returns the file of a program of the node, which is in the first folder of programs that has it.
func (m *Node) Program(name string) string {
	path := ""
	for _, folder := range m.programs {
		path = filepath.Join(folder, name)
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path
}

// weight is the share of the processors for the services, and the one for all pods. A node has a machine of its own. In one
// with the share of a single process, leases and probes of Knative would time out when the machine is busy.
const weight = 8

func createCgroup(name string) error {
	return errors.Join(cgroup.Create(name), cgroup.SetWeight(name, weight))
}

// Favor gives the pods of the node more of the processors than its services, and the Burstable pod with a UID about five times the share of a
// pod that requests 200m: a guest in QEMU that emulates its processors needs more than Kubernetes measures with probes and deadlines in
// it allow otherwise. With a much larger share the node's own probes would fail.
func (m *Node) Favor(uid string) error {
	return errors.Join(cgroup.SetWeight(m.cgroup, weight*3/2), cgroup.SetWeight(filepath.Join(m.cgroup, "kubepods", "burstable", "pod"+uid), 1))
}

// enterCgroup moves this process, and so everything that it starts, into a new cgroup.
func enterCgroup(name string) error {
	return errors.Join(createCgroup(name), cgroup.Enter(name))
}

// Path returns a file in the folder of the node, which the lab removes at its end.
func (m *Node) Path(elements ...string) string {
	return filepath.Join(append([]string{m.folder}, elements...)...)
}

// kubeletFolder is the folder of the kubelet. Device plugins and KubeVirt expect it there.
const kubeletFolder = "/var/lib/kubelet"

// mount gives the lab folders of its own at the places that containerd and the kubelet do not take from their
// configuration, and makes mounts of volumes visible to containers. Volumes of pods are on disk.
func (m *Node) mount() error {
	for _, folder := range []string{"/run", "/var/log", "/var/lib"} {
		if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", folder, err)
		}
	}
	if err := errors.Join(os.MkdirAll(m.Path("kubelet"), 0o755), os.MkdirAll(kubeletFolder, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount(m.Path("kubelet"), kubeletFolder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", kubeletFolder, err)
	}
	// The kubelet requires its cgroup in each mounted hierarchy. This one of version 1 has no controller.
	if err := unix.Unmount(filepath.Join(cgroup.Root, "systemd"), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount the cgroups of systemd: %w", err)
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// route creates a default route. Without one the kernel refuses to connect to a Service before kube-proxy's rules apply.
func route() error { return lab.IP("route add default dev " + lab.Bridge) }

// frontProxy is the name with which the API server passes requests on to the API servers of others.
const frontProxy = "front-proxy-client"

// issue writes the certificates and kubeconfigs of all components.
func (m *Node) issue() error {
	k := m.keys
	errs := []error{
		k.issue("apiserver", template("kube-apiserver"), Address, apiService, "127.0.0.1", "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
		k.issue("apiserver-kubelet", template("kube-apiserver-kubelet-client", "system:masters")),
		k.issue(frontProxy, template(frontProxy)),
		k.kubeconfig("admin", apiURL, template("admin", "system:masters")),
		k.kubeconfig("kubelet", apiURL, template("system:node:"+NodeName, "system:nodes"), Address, NodeName),
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kube-proxy", "kube-router"} {
		errs = append(errs, k.kubeconfig(name, apiURL, template("system:"+name)))
	}
	return errors.Join(errs...)
}

// writeConfiguration writes the files that the services read.
func (m *Node) writeConfiguration() error {
	replace := strings.NewReplacer("FOLDER", m.folder, "CGROUP", "/"+m.cgroup, "ADDRESS", Address, "REGISTRY", Registry, "NODE", NodeName, "PODS", pods,
		"RESOLVER", dnsService, "PROGRAMS", strings.Join(m.programs, `", "`))
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "cni/10-pods.conflist": cniConfig, "kubelet.yaml": kubeletConfig, "audit.yaml": auditPolicy, "proxy.yaml": proxyConfig,
		"registries/" + Registry + "/hosts.toml": registryConfig, "resolv.conf": "nameserver 127.0.0.1\n",
	} {
		path := m.Path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(replace.Replace(text)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

const (
	// The stack has a namespace for itself.
	auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:vitistack-system"]}
  - {level: None}
`
	registryConfig = `server = "http://REGISTRY"
[host."http://REGISTRY"]
  capabilities = ["pull", "resolve"]
`
	// A container without CAP_SYS_RESOURCE must not lower the OOM score of a process.
	containerdConfig = `version = 3
root = "FOLDER/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "REGISTRY/pause:1"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "FOLDER/registries"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni", "PROGRAMS"]
    conf_dir = "FOLDER/cni"
`
	// With the plugin bridge, answers between two pods of a Service would pass by the rules of kube-proxy.
	cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
 {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`
	kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: CGROUP
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
address: ADDRESS
tlsCertFile: FOLDER/keys/kubelet.crt
tlsPrivateKeyFile: FOLDER/keys/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: FOLDER/keys/ca.crt}}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [RESOLVER]
resolvConf: FOLDER/resolv.conf
volumePluginDir: FOLDER/plugins
failSwapOn: false
serializeImagePulls: false
maxPods: 200
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
`
	proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: FOLDER/keys/kube-proxy.kubeconfig}
hostnameOverride: NODE
detectLocalMode: ClusterCIDR
clusterCIDR: PODS
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`
)

// ControlPlane are the services of the control plane, in the order of their start.
var ControlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Worker are the services of the node.
var Worker = []string{"containerd", "kubelet", "kube-proxy"}

// NetworkPolicies is the service that enforces NetworkPolicies. Its program is kube-router, which build.sh does not build.
const NetworkPolicies = "kube-router"

// command returns the program and arguments of a service.
func (m *Node) command(name string) []string {
	key := func(file string) string { return m.keys.path(file) }
	config := func(flag string) string { return flag + "=" + key(name+".kubeconfig") }
	arguments := map[string][]string{
		// Nothing survives the lab, so nothing has to be on disk.
		"etcd": {"--unsafe-no-fsync", "--data-dir=" + m.Path("etcd"), "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL},
		"kube-apiserver": {
			"--etcd-servers=" + etcdURL, "--bind-address=" + Address, "--advertise-address=" + Address, "--service-cluster-ip-range=" + services,
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--client-ca-file=" + key("ca.crt"), "--tls-cert-file=" + key("apiserver.crt"), "--tls-private-key-file=" + key("apiserver.key"),
			"--kubelet-client-certificate=" + key("apiserver-kubelet.crt"), "--kubelet-client-key=" + key("apiserver-kubelet.key"),
			"--kubelet-certificate-authority=" + key("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--requestheader-client-ca-file=" + key("ca.crt"), "--requestheader-allowed-names=" + frontProxy,
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--audit-policy-file=" + m.Path("audit.yaml"), "--audit-log-path=" + m.Path("logs", "audit.log"),
			"--proxy-client-cert-file=" + key(frontProxy+".crt"), "--proxy-client-key-file=" + key(frontProxy+".key"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key("service-accounts.key"),
			"--service-account-signing-key-file=" + key("service-accounts.key"),
		},
		"kube-controller-manager": {
			config("--kubeconfig"), config("--authentication-kubeconfig"), config("--authorization-kubeconfig"), "--bind-address=127.0.0.1",
			"--root-ca-file=" + key("ca.crt"), "--service-account-private-key-file=" + key("service-accounts.key"), "--use-service-account-credentials=true",
		},
		"kube-scheduler": {config("--kubeconfig"), config("--authentication-kubeconfig"), config("--authorization-kubeconfig"), "--bind-address=127.0.0.1"},
		"containerd":     {"--config=" + m.Path("containerd.toml")},
		"kubelet": {
			"--config=" + m.Path("kubelet.yaml"), config("--kubeconfig"), "--hostname-override=" + NodeName, "--node-ip=" + Address,
			"--root-dir=" + kubeletFolder,
		},
		"kube-proxy": {"--config=" + m.Path("proxy.yaml")},
		// Only NetworkPolicies: kube-proxy serves Services, and the CNI plugin ptp connects pods.
		"kube-router": {
			config("--kubeconfig"), "--hostname-override=" + NodeName, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
			"--service-cluster-ip-range=" + services, "--health-port=0",
		},
	}
	return append([]string{m.Program(name)}, arguments[name]...)
}

// Requests returns the requests of the stack that the API server has answered since a time.
func (m *Node) Requests(since time.Time) ([]audit.Request, error) {
	return audit.Read(m.Path("logs"), since)
}

// Start starts services that do not run yet.
func (m *Node) Start(names ...string) error {
	for _, name := range names {
		if err := m.StartService(name, m.command(name)...); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	return nil
}

// StartService starts a program that is started again whenever it ends. Its output is in the folder logs.
func (m *Node) StartService(name string, args ...string) error {
	s, err := startService(name, m.Path("logs", name+".log"), args...)
	if err == nil {
		m.Services[name] = s
	}
	return err
}
