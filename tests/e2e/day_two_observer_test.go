package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/stand/engine"
)

// machine is a Machine of a cluster.
type machine struct {
	name, uid, address string
	created            time.Time
	isControlPlane     bool
}

// vm is a virtual machine that a hypervisor has.
type vm struct {
	// uid is the UID of the Machine that it was created for.
	uid   string
	cores int
	disks []string
}

// cores are the cores of the sizes that exist without a MachineClass.
var cores = map[string]int{"small": 1, "medium": 2, "large": 4}

// machines returns the Machines of the control plane (cp), of the pool (pool), or of both if group is empty.
func (s *site) machines(group string) []machine {
	s.t.Helper()
	machines, err := s.readMachines(s.t.Context(), group)
	if err != nil {
		s.t.Fatal(err)
	}
	return machines
}

func (s *site) readMachines(ctx context.Context, group string) (machines []machine, err error) {
	list, err := s.Client.Resource(engine.Machines).Namespace(s.hypervisor).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, m := range list.Items {
		if group != "" && !strings.HasPrefix(m.GetName(), s.cluster+"-"+group+"-") {
			continue
		}
		found := machine{
			name: m.GetName(), uid: string(m.GetUID()), created: m.GetCreationTimestamp().Time,
			isControlPlane: strings.HasPrefix(m.GetName(), s.cluster+"-cp-"),
		}
		if addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses"); len(addresses) > 0 {
			found.address = addresses[0]
		}
		machines = append(machines, found)
	}
	return machines, nil
}

// uids returns the UIDs of all Machines, sorted.
func (s *site) uids() (uids []string) {
	s.t.Helper()
	for _, m := range s.machines("") {
		uids = append(uids, m.uid)
	}
	slices.Sort(uids)
	return uids
}

// vms returns the virtual machines of the hypervisor.
func (s *site) vms(ctx context.Context) ([]vm, error) {
	if s.hypervisor == "proxmox" {
		return s.proxmoxVMs()
	}
	list, err := s.Client.Resource(engine.VirtualMachines).Namespace(s.hypervisor).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims, err := s.Client.Resource(engine.Claims).Namespace(s.hypervisor).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found []vm
	for _, v := range list.Items {
		n, _, _ := unstructured.NestedInt64(v.Object, "spec", "template", "spec", "domain", "cpu", "cores")
		one := vm{uid: v.GetAnnotations()["vitistack.io/uid"], cores: int(n)}
		for _, c := range claims.Items {
			if c.GetLabels()["vitistack.io/machine"] == v.GetName() {
				one.disks = append(one.disks, c.GetName())
			}
		}
		found = append(found, one)
	}
	return found, nil
}

// proxmoxVMs returns the virtual machines of Proxmox VE that have an owner: it writes the owner after it has created the disks.
func (s *site) proxmoxVMs() ([]vm, error) {
	var state struct {
		Machines []struct {
			ID     int
			Config map[string]string
		}
		Volumes []struct {
			Key    struct{ Name string }
			Volume struct{ VMID int }
		}
	}
	if err := s.readState(&state, "proxmox.json"); err != nil {
		return nil, err
	}
	var found []vm
	for _, m := range state.Machines {
		one := vm{uid: machineUID(m.Config["description"])}
		_, _ = fmt.Sscan(m.Config["cores"], &one.cores)
		for _, v := range state.Volumes {
			if v.Volume.VMID == m.ID {
				one.disks = append(one.disks, v.Key.Name)
			}
		}
		if one.uid != "" {
			found = append(found, one)
		}
	}
	return found, nil
}

// machineUID returns the UID in the description of a virtual machine.
func machineUID(description string) string {
	for _, word := range strings.FieldsFunc(description, func(r rune) bool { return r == ' ' || r == '\n' || r == '/' || r == '`' }) {
		if len(word) == 36 && strings.Count(word, "-") == 4 {
			return word
		}
	}
	return ""
}

// readState reads the state of a simulator. A missing file is an empty state.
func (s *site) readState(to any, path ...string) error {
	text, err := os.ReadFile(filepath.Join(append([]string{s.Dir, "sim"}, path...)...))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// etcdMember is a member of the etcd of the cluster.
type etcdMember struct {
	Name    string
	Learner bool
}

// members returns the members of the cluster's etcd, also those that have not started.
func (s *site) members() ([]etcdMember, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "sim", "talos", "clusters", "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		var c struct {
			Etcd *struct{ Members []etcdMember }
		}
		if err := s.readState(&c, "talos", "clusters", filepath.Base(file)); err != nil {
			return nil, err
		}
		if c.Etcd != nil && slices.ContainsFunc(c.Etcd.Members, func(m etcdMember) bool { return strings.HasPrefix(m.Name, s.cluster+"-") }) {
			return c.Etcd.Members, nil
		}
	}
	return nil, nil
}

// nodes returns the Nodes that the first API server of the cluster returns which answers.
func (s *site) nodes(ctx context.Context) ([]corev1.Node, error) {
	secret, err := s.Client.Resource(engine.Secrets).Namespace(s.hypervisor).Get(ctx, s.cluster+"-kubeconfig", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(data(secret, "kubeconfig")))
	if err != nil {
		return nil, err
	}
	config.Timeout = 2 * time.Second
	controls, err := s.readMachines(ctx, "cp")
	if err != nil {
		return nil, err
	}
	problems := []error{errors.New("no API server answers")}
	for _, m := range controls {
		if m.address == "" {
			continue
		}
		config.Host = "https://" + net.JoinHostPort(m.address, "6443")
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			return list.Items, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// isReady reports whether a Node is Ready.
func isReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// difference returns how the hypervisor, etcd, the addresses and the Nodes differ from the shape of the cluster, or an empty string.
func (s *site) difference() string {
	s.t.Helper()
	machines := s.machines("")
	want := map[string]machine{}
	var names, controls, allocations []string
	for _, m := range machines {
		want[m.uid] = m
		names = append(names, m.name)
		allocations = append(allocations, m.name+"-eth0")
		if m.isControlPlane {
			controls = append(controls, m.name)
		}
	}
	if len(controls) != s.shape.controls || len(machines) != s.shape.controls+s.shape.workers {
		return fmt.Sprintf("the Machines are %v", names)
	}
	wrong := []string{
		s.differenceOfVMs(want), s.differenceOfNodes(names), s.differenceOfMembers(controls),
		differs("NetworkConfigurations", s.namesOf(engine.NetworkConfigurations), names),
		differs("IPAllocations", s.namesOf(engine.IPAllocations), append(allocations, s.cluster+"-vip")),
		differs("running nodes", s.running(), names),
	}
	// The virtual address has a Lease, and each machine has one for its address and one for its MAC address.
	if leases := s.namesOf(engine.Leases); len(leases) != 2*len(machines)+1 {
		wrong = append(wrong, fmt.Sprintf("%d machines and one virtual address have the Leases %v", len(machines), leases))
	}
	return strings.Join(slices.DeleteFunc(wrong, func(w string) bool { return w == "" }), "; ")
}

// differs returns how two sets differ, or an empty string.
func differs(what string, got, want []string) string {
	slices.Sort(got)
	slices.Sort(want)
	if slices.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("%s: %v, want %v", what, got, want)
}

func (s *site) namesOf(kind schema.GroupVersionResource) (names []string) {
	s.t.Helper()
	for _, obj := range s.List(kind, s.hypervisor, "") {
		names = append(names, obj.GetName())
	}
	return names
}

// differenceOfVMs compares the hypervisor with the Machines: one virtual machine each, with the size of its pool and one disk.
func (s *site) differenceOfVMs(want map[string]machine) string {
	s.t.Helper()
	vms, err := s.vms(s.t.Context())
	if err != nil {
		return err.Error()
	}
	if len(vms) != len(want) {
		return fmt.Sprintf("%d virtual machines for %d Machines", len(vms), len(want))
	}
	for _, v := range vms {
		m, known := want[v.uid]
		size := s.shape.workerSize
		if m.isControlPlane {
			size = s.shape.controlSize
		}
		switch {
		case !known:
			return fmt.Sprintf("a virtual machine of the Machine with UID %s, which does not exist", v.uid)
		case v.cores != cores[size]:
			return fmt.Sprintf("the virtual machine of %s has %d cores, want those of %s", m.name, v.cores, size)
		case len(v.disks) != 1:
			return fmt.Sprintf("the virtual machine of %s has the disks %v", m.name, v.disks)
		}
		delete(want, v.uid)
	}
	return strings.Join(s.orphanedDisks(), ", ")
}

// orphanedDisks returns disks without a virtual machine.
func (s *site) orphanedDisks() (orphaned []string) {
	s.t.Helper()
	if s.hypervisor == "kubevirt" {
		for _, c := range s.List(engine.Claims, s.hypervisor, "") {
			if s.Get(engine.VirtualMachines, s.hypervisor, c.GetLabels()["vitistack.io/machine"]) == nil {
				orphaned = append(orphaned, "claim "+c.GetName())
			}
		}
		for _, v := range s.List(engine.Volumes, "", "") {
			namespace, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "namespace")
			name, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "name")
			if namespace == s.hypervisor && s.Get(engine.Claims, namespace, name) == nil {
				orphaned = append(orphaned, "volume of claim "+name)
			}
		}
		return orphaned
	}
	var state struct {
		Machines []struct{ ID int }
		Volumes  []struct {
			Key    struct{ Name string }
			Volume struct{ VMID int }
		}
	}
	if err := s.readState(&state, "proxmox.json"); err != nil {
		return []string{err.Error()}
	}
	for _, v := range state.Volumes {
		if v.Volume.VMID != 0 && !slices.ContainsFunc(state.Machines, func(m struct{ ID int }) bool { return m.ID == v.Volume.VMID }) {
			orphaned = append(orphaned, "volume "+v.Key.Name)
		}
	}
	return orphaned
}

// differenceOfNodes compares the Nodes with the Machines. Each is Ready and schedulable, and has the version of the cluster.
func (s *site) differenceOfNodes(want []string) string {
	s.t.Helper()
	nodes, err := s.nodes(s.t.Context())
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
		version := n.Status.NodeInfo.KubeletVersion
		if !isReady(n) || n.Spec.Unschedulable || !strings.HasPrefix(version, "v"+s.shape.version+".") {
			return fmt.Sprintf("Node %s: Ready %t, unschedulable %t, version %s", n.Name, isReady(n), n.Spec.Unschedulable, version)
		}
	}
	return differs("Nodes", names, want)
}

// differenceOfMembers compares the voting members of etcd with the control planes.
func (s *site) differenceOfMembers(want []string) string {
	s.t.Helper()
	members, err := s.members()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, m := range members {
		if m.Learner {
			return fmt.Sprintf("%s does not vote in etcd", m.Name)
		}
		names = append(names, m.Name)
	}
	return differs("members of etcd", names, want)
}

// running returns the names of the nodes in the network of the site that have a disk.
func (s *site) running() (names []string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "sim", "talos", "machines", "*.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	byAddress := map[string]string{}
	for _, m := range s.machines("") {
		byAddress[m.address] = m.name
	}
	for _, file := range files {
		var r struct {
			Machine struct {
				ID      string
				Address netip.Prefix
			}
		}
		if err := s.readState(&r, "talos", "machines", filepath.Base(file)); err != nil {
			return []string{err.Error()}
		}
		address := r.Machine.Address.Addr()
		if address.IsValid() {
			if host := int(address.As4()[3]); host < s.first || host > s.last {
				continue
			}
		}
		name, known := byAddress[address.String()]
		if !known {
			name = "machine " + r.Machine.ID + " at " + address.String()
		}
		names = append(names, name)
	}
	return names
}

// leftAtBackends returns what backends have of the site.
func (s *site) leftAtBackends() (left []string) {
	s.t.Helper()
	vms, err := s.vms(s.t.Context())
	if err != nil {
		left = append(left, err.Error())
	}
	for _, v := range vms {
		left = append(left, "the virtual machine of "+v.uid)
	}
	members, err := s.members()
	if err != nil || len(members) > 0 {
		left = append(left, fmt.Sprint("members of etcd: ", members, err))
	}
	return slices.Concat(left, s.orphanedDisks(), s.running())
}

// limits bound what the stack may do to a cluster by itself.
type limits struct {
	// ready is the fewest workers that are Ready, and workers the most Machines of the pool.
	ready, workers int
	// members is the fewest members of etcd, and controls the most Machines of the control plane.
	members, controls int
}

// observer watches a cluster all the time.
type observer struct {
	site *site
	stop func()

	mu       sync.Mutex
	limits   limits
	problems []string
}

// observe starts to watch a cluster with the limits of one that does not change. It ends with t.
func observe(t *testing.T, s *site) *observer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	o := &observer{site: s, limits: s.steady(), stop: func() { cancel(); <-done }}
	t.Cleanup(o.stop)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			o.look(ctx)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return o
}

// allow changes the limits from now on.
func (o *observer) allow(l limits) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limits = l
}

// check fails t with what was beyond the limits.
func (o *observer) check(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, problem := range o.problems {
		t.Errorf("%s: %s", o.site.cluster, problem)
	}
	o.problems = nil
}

// look reads everything once. It holds the lock meanwhile, so that no change of the limits happens between reading and comparing.
func (o *observer) look(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	problem := func(format string, args ...any) {
		if ctx.Err() == nil {
			o.problems = append(o.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
		}
	}
	machines, err := o.site.readMachines(ctx, "")
	if err != nil {
		problem("%v", err)
	}
	addresses := map[string]string{}
	workers, controls := 0, 0
	for _, m := range machines {
		if m.isControlPlane {
			controls++
		} else {
			workers++
		}
		if other, taken := addresses[m.address]; taken && m.address != "" {
			problem("%s and %s have the address %s", other, m.name, m.address)
		}
		addresses[m.address] = m.name
	}
	if workers > o.limits.workers || controls > o.limits.controls {
		problem("the pool has %d Machines and the control plane %d, want at most %d and %d", workers, controls, o.limits.workers, o.limits.controls)
	}
	vms, err := o.site.vms(ctx)
	if err != nil {
		problem("%v", err)
	}
	owners := map[string]bool{}
	for _, v := range vms {
		if owners[v.uid] {
			problem("the Machine with UID %s has two virtual machines", v.uid)
		}
		owners[v.uid] = true
	}
	members, err := o.site.members()
	if err != nil || len(members) < o.limits.members {
		problem("etcd has the members %v, want at least %d: %v", members, o.limits.members, err)
	}
	nodes, err := o.site.nodes(ctx)
	if err != nil {
		problem("%v", err)
		return
	}
	ready := 0
	for _, n := range nodes {
		if strings.HasPrefix(n.Name, o.site.cluster+"-pool-") && isReady(n) {
			ready++
		}
	}
	if ready < o.limits.ready {
		problem("%d workers are Ready, want at least %d", ready, o.limits.ready)
	}
}
