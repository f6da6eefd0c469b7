package talos

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// service is the state of one of the machine's services.
type service struct {
	id      string
	running bool
	healthy bool
	// unknown is whether the service has no health check.
	unknown bool
	state   string
	message string
}

// machineStatus is the status of a machine.
type machineStatus struct {
	stage runtime.MachineStage
	ready bool
	unmet []runtime.UnmetCondition
}

// facts are the input of the services and the status.
type facts struct {
	stage        runtime.MachineStage
	controlPlane bool
	configured   bool
	services     bool
	// kubelet is since when the kubelet's image is not found, or the zero time, and image that image.
	kubelet time.Time
	image   string
	etcd    etcdState
	quorum  bool
	// nodename is empty if the machine registers no Node.
	nodename   string
	nodeKnown  bool
	nodeReady  bool
	staticPods []string
	podsReady  int
}

// facts returns the facts of the machine. Callers hold Fleet.mu.
func (b *boot) facts() facts {
	n := b.node
	f := facts{
		stage: b.stage, controlPlane: n.controlPlane(), configured: n.config != nil && b.stage != runtime.MachineStageInstalling,
		services: b.services, etcd: b.etcd, kubelet: b.kubeletSince,
	}
	c := n.cluster()
	if c == nil {
		return f
	}
	f.quorum, f.image = c.quorum(), n.config.Machine().Kubelet().Image()
	if !n.config.Machine().Kubelet().SkipNodeRegistration() {
		f.nodename = b.nodename()
	}
	if b.joined != "" {
		if node, ok := c.workload.Node(b.joined); ok {
			f.nodeKnown, f.nodeReady = true, workload.NodeReady(node)
		}
		f.podsReady = c.workload.StaticPodsReady(b.joined)
	}
	if f.controlPlane && b.etcd == etcdUp {
		for name := range staticPods(n.config) {
			f.staticPods = append(f.staticPods, name)
		}
		slices.Sort(f.staticPods)
	}
	return f
}

// servicesOf returns the services of a machine.
func servicesOf(f facts) []service {
	up := func(id string, unknown bool) service {
		return service{id: id, running: true, healthy: !unknown, unknown: unknown, state: "Running", message: "Health check successful"}
	}
	list := []service{up("apid", false), up("auditd", false), up("containerd", false)}
	if f.configured {
		cri := service{id: "cri", state: "Preparing", message: "Waiting for service \"containerd\" to be \"up\""}
		kubelet := service{id: "kubelet", state: "Waiting", message: "Waiting for service \"cri\" to be \"up\""}
		if f.services {
			cri, kubelet = up("cri", false), up("kubelet", false)
		}
		switch {
		case !f.services || f.kubelet.IsZero():
		case time.Since(f.kubelet) < notFoundRetries:
			kubelet = service{id: "kubelet", state: "Preparing", message: "Running pre state"}
		default:
			kubelet = service{id: "kubelet", state: "Failed", message: fmt.Sprintf("Failed to run pre stage: failed to pull image %q: not found", f.image)}
		}
		list = append(list, cri, kubelet)
		if f.controlPlane {
			list = append(list, etcdService(f), up("trustd", false))
		}
	}
	list = append(list, up("dashboard", true), up("machined", false), up("syslogd", false), up("udevd", false))
	slices.SortFunc(list, func(a, b service) int { return strings.Compare(a.id, b.id) })
	return list
}

func etcdService(f facts) service {
	s := service{id: "etcd"}
	switch {
	case f.etcd == etcdUp && f.quorum:
		s.running, s.healthy, s.state, s.message = true, true, "Running", "Health check successful"
	case f.etcd == etcdUp:
		s.running, s.state, s.message = true, "Running", "Health check failed: context deadline exceeded"
	case f.etcd == etcdStarting:
		s.state, s.message = "Preparing", "Creating service runner"
	case f.etcd == etcdStopped:
		s.state, s.message = "Finished", "Service finished successfully"
	case f.services:
		s.state, s.message = "Preparing", "Running pre state"
	default:
		s.state, s.message = "Waiting", "Waiting for service \"cri\" to be \"up\""
	}
	return s
}

// statusOf returns the machine's status. Outside of booting and running, a stage is always ready.
func statusOf(f facts) machineStatus {
	s := machineStatus{stage: f.stage, ready: true}
	if f.stage != runtime.MachineStageBooting && f.stage != runtime.MachineStageRunning {
		return s
	}
	unmet := func(name, reason string) {
		s.ready = false
		s.unmet = append(s.unmet, runtime.UnmetCondition{Name: name, Reason: reason})
	}
	if problems := serviceProblems(f); len(problems) > 0 {
		unmet("services", strings.Join(problems, ", "))
	}
	if missing := len(f.staticPods) - f.podsReady; missing > 0 {
		var waiting []string
		for _, pod := range f.staticPods {
			waiting = append(waiting, fmt.Sprintf("kube-system/%s-%s not ready", pod, f.nodename))
		}
		unmet("staticPods", strings.Join(waiting, ", "))
	}
	switch {
	case f.nodename == "":
	case !f.nodeKnown:
		unmet("nodeReady", fmt.Sprintf("node %q status is not available yet", f.nodename))
	case !f.nodeReady:
		unmet("nodeReady", fmt.Sprintf("node %q is not ready", f.nodename))
	}
	return s
}

// serviceProblems returns the unhealthy services, and then the services that should run and do not.
func serviceProblems(f facts) []string {
	required := []string{"apid", "machined", "kubelet"}
	if f.controlPlane {
		required = append(required, "etcd", "trustd")
	}
	var problems []string
	running := map[string]bool{}
	for _, s := range servicesOf(f) {
		running[s.id] = s.running
		if s.running && !s.unknown && !s.healthy {
			problems = append(problems, s.id+" not healthy")
		}
	}
	for _, id := range required {
		if !running[id] {
			problems = append(problems, id+" not running")
		}
	}
	return problems
}

// announceStatus publishes the states of services and the status of the machine that have changed. Callers hold Fleet.mu.
func (b *boot) announceStatus() {
	f := b.facts()
	b.announceServices(servicesOf(f))
	s := statusOf(f)
	if reflect.DeepEqual(s, b.last) {
		return
	}
	b.last = s
	event := &machineapi.MachineStatusEvent{
		Stage:  machineapi.MachineStatusEvent_MachineStage(s.stage),
		Status: &machineapi.MachineStatusEvent_MachineStatus{Ready: s.ready},
	}
	for _, u := range s.unmet {
		event.Status.UnmetConditions = append(event.Status.UnmetConditions,
			&machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: u.Name, Reason: u.Reason})
	}
	b.events.publish(event, "")
}

// announceServices publishes the services whose state or health has changed, as machined's ServiceRunner does.
func (b *boot) announceServices(services []service) {
	for _, s := range services {
		if s == b.lastServices[s.id] {
			continue
		}
		b.lastServices[s.id] = s
		event := &machineapi.ServiceStateEvent{
			Service: s.id, Message: s.message, Action: actionOf(s.state),
			Health: &machineapi.ServiceHealth{Unknown: s.unknown || !s.running, Healthy: s.healthy},
		}
		b.events.publish(event, "")
	}
}

// actionOf returns the state of a service as its event has it.
func actionOf(state string) machineapi.ServiceStateEvent_Action {
	return machineapi.ServiceStateEvent_Action(machineapi.ServiceStateEvent_Action_value[strings.ToUpper(state)])
}
