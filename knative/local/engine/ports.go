package engine

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/stack/knative/local/manifest"
)

// servicePort is the port to which Knative sends requests for a Service.
const servicePort = 80

// ports are the local ports for the ports of a container.
type ports map[int32]int

// in replaces ports of the container in variables.
func (p ports) in(env map[string]string) {
	for name, value := range env {
		if number, err := strconv.ParseInt(value, 10, 32); err == nil {
			if here, ok := p[int32(number)]; ok {
				env[name] = strconv.Itoa(here)
			}
		}
	}
}

// placeDeployments chooses ports for each Deployment, and sets them in the Services that select its
// pods.
func (e *engine) placeDeployments() error {
	for _, program := range e.topology.Deployments {
		placed, err := e.place(program)
		if err != nil {
			return err
		}
		e.programs.ports[program.Name] = placed
		for _, service := range e.topology.Services {
			if service.Namespace != program.Namespace || len(service.Spec.Selector) == 0 ||
				!labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(program.PodLabels)) {
				continue
			}
			if here, ok := placed[target(service, program.Container.Ports)]; ok {
				e.addresses.set(serviceRef(service.Namespace, service.Name), mustURL(fmt.Sprintf("http://127.0.0.1:%d", here)))
			}
		}
	}
	return nil
}

// place keeps a local port for each port of the container until the engine stops, also while the program starts again.
// The first is the program's own port, in the variable PORT.
func (e *engine) place(program manifest.Program) (ports, error) {
	placed := ports{}
	of := func(name string, number int, flag string) (int, error) {
		kept, err := e.state.keepPort(name, number, flag)
		if err != nil {
			return 0, err
		}
		e.closers = append(e.closers, kept.Close)
		return kept.Number(), nil
	}
	port, flag := 0, ""
	if program.Name == gatewayName {
		port, flag = e.options.GatewayPort, "--gateway-port (of make run: GATEWAY_PORT=...)"
	}
	own, err := of(program.Name, port, flag)
	if err != nil {
		return nil, err
	}
	e.ports[program.Name] = own
	if program.Name == gatewayName {
		e.gateway = fmt.Sprintf("http://127.0.0.1:%d/", own)
	}
	for i, p := range program.Container.Ports {
		if i == 0 {
			placed[p.ContainerPort] = own
			continue
		}
		if placed[p.ContainerPort], err = of(fmt.Sprintf("%s-%d", program.Name, p.ContainerPort), 0, ""); err != nil {
			return nil, err
		}
	}
	return placed, nil
}

// target returns the container's port to which the Service sends Knative's events, or 0.
func target(service *corev1.Service, container []corev1.ContainerPort) int32 {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == servicePort })
	if i < 0 {
		return 0
	}
	to := service.Spec.Ports[i].TargetPort
	if to.Type == intstr.Int {
		if to.IntVal == 0 {
			return servicePort
		}
		return to.IntVal
	}
	for _, p := range container {
		if p.Name == to.StrVal {
			return p.ContainerPort
		}
	}
	return 0
}
